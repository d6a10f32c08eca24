"""Where the heads of queries, keys and values come from: transposed, repeated, or cut out of one packed projection."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnxgrad.graph.builder import Builder
from onnxgrad.graph.patterns.matching import Sight


@dataclass
class Heads:
    """The same heads in the forms that the graph has: [N, H, S, D], and [N, S, H, D] before a transposition."""

    heads: ir.Value | None
    tokens: ir.Value | None
    factor: float = 1.0
    repeated: ir.Value | None = (
        None  # [N, G, r, S, D] of which the heads are a view, where they are not there
    )

    def as_heads(self, op: Builder) -> ir.Value:
        """[N, H, S, D]."""
        return (
            self.heads if self.heads is not None else op.Transpose(self.tokens, perm=[0, 2, 1, 3])
        )


def _transposed(sight: Sight, value: ir.Value, *perms: tuple[int, ...]) -> tuple | None:
    """The order and the input of the Transpose that made a value, if the order is one of these."""
    node = sight.maker(value, "Transpose")
    perm = (
        None
        if node is None or "perm" not in node.attributes
        else tuple(node.attributes["perm"].value)
    )
    return (perm, node.inputs[0]) if perm in perms else None


def queries_of(sight: Sight, value: ir.Value) -> Heads:
    """Heads of queries or values."""
    found = _transposed(sight, value, (0, 2, 1, 3))
    return Heads(value, None if found is None else found[1])


def keys_of(sight: Sight, value: ir.Value) -> Heads | None:
    """Heads of keys, given as [N, H, D, L]."""
    value, factor = sight.unscaled(value)
    found = _transposed(sight, value, (0, 1, 3, 2), (0, 2, 3, 1), (0, 2, 1))
    if found is None:
        inner = _in_three_axes(sight, value)
        if inner is not None and len(sight.dims(inner)) == 5:
            return Heads(None, None, factor, repeated=inner)
        return None if inner is None else _scaled_heads(sight, inner, factor)
    perm, source = found
    if perm == (0, 2, 3, 1):
        return Heads(None, source, factor) if sight.dims(source) is not None else None
    return _scaled_heads(sight, source, factor)


def _scaled_heads(sight: Sight, value: ir.Value, factor: float) -> Heads | None:
    inner, more = sight.unscaled(value)
    if sight.dims(inner) is None:
        return None
    found = queries_of(sight, inner)
    return Heads(found.heads, found.tokens, factor * more)


def groups_of(sight: Sight, q: Heads, k: Heads, v: Heads) -> tuple[Heads, Heads, Heads] | None:
    """The same with keys and values as they were before each of their heads was repeated for several queries.

    None where keys are there in no other form, and values were not repeated alike.
    """
    grouped = [_before_repeats(sight, h) for h in (k, v)]
    if None not in grouped and len({sight.dims(value)[1] for value in grouped}) == 1:
        keys, values = (queries_of(sight, value) for value in grouped)
        keys.factor = k.factor
        return q, keys, values
    return None if k.repeated is not None else (q, k, v)


def _before_repeats(sight: Sight, h: Heads) -> ir.Value | None:
    """[N, G, L, D] of heads that are Expand([N, G, 1, L, D]) to [N, G, r, L, D], reshaped to [N, G·r, L, D]."""
    whole = h.repeated
    if whole is None:
        view = None if h.heads is None else sight.maker(h.heads, "Reshape")
        whole = None if view is None else view.inputs[0]
        if whole is None or sight.dims(h.heads) != _joined(sight.dims(whole)):
            return None
    spread = sight.maker(whole, "Expand", "Tile")
    single = None if spread is None else sight.maker(spread.inputs[0], "Unsqueeze")
    if single is None:
        return None
    shape, one = sight.dims(whole), sight.dims(spread.inputs[0])
    source = sight.dims(single.inputs[0])
    known = shape is not None and one is not None and source is not None and len(shape) == 5
    if not known or one != (*shape[:2], 1, *shape[3:]) or source != (*shape[:2], *shape[3:]):
        return None
    return single.inputs[0]


def _joined(shape: tuple | None) -> tuple | None:
    """[N, G, r, L, D] as [N, G·r, L, D]."""
    if shape is None or len(shape) != 5 or not all(isinstance(d, int) for d in shape[1:3]):
        return None
    return (shape[0], shape[1] * shape[2], *shape[3:])


def _in_three_axes(sight: Sight, value: ir.Value) -> ir.Value | None:
    """[N, H, L, D] that was transposed as [N·H, L, D]; also [N, G, r, L, D], where G·r is H."""
    split = sight.maker(value, "Reshape")
    turned = None if split is None else _transposed(sight, split.inputs[0], (0, 2, 1))
    merged = None if turned is None else sight.maker(turned[1], "Reshape")
    if merged is None:
        return None
    source, middle = merged.inputs[0], sight.dims(turned[1])
    shape, result = sight.dims(source), sight.dims(value)
    four = _joined(shape) or shape
    if four is None or result is None or middle is None or len(four) != 4 or len(result) != 4:
        return None
    same = four[2:] == middle[1:] and result == (*four[:2], four[3], four[2])
    return source if same else None


# ---- packed projections


def packed_of(sight: Sight, q: Heads, k: Heads, v: Heads) -> ir.Value | None:
    """[N, S, 3, H, D] of which queries, keys and values are the three parts, in this order."""
    parts = [_part_of_heads(sight, h) or _part_of_tokens(sight, h) for h in (q, k, v)]
    if any(p is None for p in parts) or [p[1] for p in parts] != [0, 1, 2]:
        return None
    sources = {id(p[0]): p[0] for p in parts}
    if len(sources) != 1:
        return None
    source, _, shape = parts[0]
    if any(p[2] != shape for p in parts):
        return None
    return source if shape is None else sight.op.Reshape(source, [0, 0, 3, *shape])


def _part_of_heads(sight: Sight, h: Heads) -> tuple | None:
    """Cut along the first axis of [3, N, H, S, D], the transposition of [N, S, 3, H, D]; or along the third of that."""
    for value in (h.heads, h.tokens):
        found = None if value is None else _picked(sight, value)
        if found is None:
            continue
        source, axis, index = found
        if value is h.tokens and axis == 2 and _is_packed(sight, source):
            return source, index, None
        turned = _transposed(sight, source, (2, 0, 3, 1, 4))
        if value is h.heads and axis == 0 and turned is not None and _is_packed(sight, turned[1]):
            return turned[1], index, None
    return None


def _is_packed(sight: Sight, value: ir.Value) -> bool:
    shape = sight.dims(value)
    return shape is not None and len(shape) == 5 and shape[2] == 3


def _picked(sight: Sight, value: ir.Value) -> tuple | None:
    """Source, axis and index of one slice of size 1, squeezed."""
    node = sight.maker(value, "Gather")
    if node is not None:
        index = sight.ints(node.inputs[1]) if sight.dims(node.inputs[1]) == () else None
        return (
            None if index is None else (node.inputs[0], sight.attribute(node, "axis", 0), index[0])
        )
    node = sight.maker(value, "Squeeze")
    if node is None or len(node.inputs) < 2:
        return None
    axes, cut = sight.ints(node.inputs[1]), _cut(sight, node.inputs[0])
    if cut is None or axes != [cut[1]] or cut[3] - cut[2] != 1:
        return None
    return cut[0], cut[1], cut[2]


def _cut(sight: Sight, value: ir.Value) -> tuple | None:
    """Source, axis, begin and end of a part of a tensor: an output of Split, or a Slice."""
    node = sight.maker(value, "Slice")
    if node is not None:
        starts, ends, axes, steps = (
            [sight.ints(v) if v is not None else None for v in node.inputs[1:]] + [None] * 2
        )[:4]
        usual = starts and ends and axes and len(starts) == len(axes) == 1 and steps in (None, [1])
        if not usual or starts[0] < 0 or ends[0] < 0:
            return None
        return node.inputs[0], axes[0], starts[0], ends[0]
    node = sight.maker(value, "Split")
    if node is None:
        return None
    shape = sight.dims(node.inputs[0])
    axis = sight.attribute(node, "axis", 0)
    sizes = [(sight.dims(v) or ())[axis:][:1] for v in node.outputs] if shape else []
    if not shape or axis < 0 or any(len(s) != 1 or not isinstance(s[0], int) for s in sizes):
        return None
    at = list(node.outputs).index(value)
    begin = sum(s[0] for s in sizes[:at])
    return node.inputs[0], axis, begin, begin + sizes[at][0]


def _part_of_tokens(sight: Sight, h: Heads) -> tuple | None:
    """[N, S, H, D], reshaped from a third of [N, S, 3·H·D]."""
    node = None if h.tokens is None else sight.maker(h.tokens, "Reshape")
    cut = None if node is None else _cut(sight, node.inputs[0])
    if cut is None:
        return None
    source, axis, begin, end = cut
    shape, whole = sight.dims(h.tokens), sight.dims(source)
    if shape is None or whole is None or len(shape) != 4 or len(whole) != 3 or axis not in (2, -1):
        return None
    width = shape[2] * shape[3] if isinstance(shape[2], int) and isinstance(shape[3], int) else 0
    if (
        not width
        or shape[:2] != whole[:2]
        or whole[2] != 3 * width
        or end - begin != width
        or begin % width
    ):
        return None
    return source, begin // width, (shape[2], shape[3])
