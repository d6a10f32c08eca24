"""Slices that share a tensor out among them: one Split, whose gradient is one Concat."""

from __future__ import annotations

import onnx_ir as ir

from onnxgrad.graph.patterns.matching import Sight


def see_split(sight: Sight, node: ir.Node) -> str | None:
    """Begin at the first slice; torch.chunk is exported so."""
    if node.op_type != "Slice" or node.domain or node in sight.replaced:
        return None
    x = node.inputs[0]
    first = _piece(sight, node)
    if first is None or first[1] != 0 or sight.op.opset < 13:
        return None
    axis, place, pieces = first[0], 0, []
    slices = [u.node for u in x.uses() if u.idx == 0 and u.node.op_type == "Slice"]
    found = {p[1]: (p, n) for n in slices if (p := _piece(sight, n)) is not None and p[0] == axis}
    while place in found:
        piece, maker = found[place]
        pieces.append((maker, piece[2] - piece[1]))
        place = piece[2]
    if len(pieces) < 2 or place != sight.dims(x)[axis]:
        return None
    sizes = sight.op.constant([size for _, size in pieces])
    parts = sight.op.emit("Split", [x, sizes], {"axis": axis}, len(pieces))
    for (maker, _), part in zip(pieces, parts, strict=True):
        sight.replace(maker.outputs[0], part)
    return "Split"


def whole_of(sight: Sight, a: ir.Value, b: ir.Value) -> tuple[ir.Value, int] | None:
    """The tensor whose halves a and b are, in this order, and along which axis; nothing else reads them."""
    first, second = a.producer(), b.producer()
    if first is None or second is None or not (sight.read_once(a) and sight.read_once(b)):
        return None
    if first is second and first.op_type == "Split" and not first.domain:
        shape = sight.dims(first.inputs[0])
        if shape is None or tuple(first.outputs) != (a, b) or sight.dims(a) != sight.dims(b):
            return None
        return first.inputs[0], sight.attribute(first, "axis", 0) % len(shape)
    if (
        first.op_type != "Slice"
        or second.op_type != "Slice"
        or first.inputs[0] is not second.inputs[0]
    ):
        return None
    before, after = _piece(sight, first), _piece(sight, second)
    if before is None or after is None or before[0] != after[0]:
        return None
    axis, middle = before[0], before[2]
    size = sight.dims(first.inputs[0])[axis]
    halves = before[1] == 0 and after[1] == middle and after[2] == size and 2 * middle == size
    return (first.inputs[0], axis) if halves else None


def _piece(sight: Sight, node: ir.Node) -> tuple[int, int, int] | None:
    """Axis, begin and end of a slice along one axis, step by step; None of anything else, or of nothing."""
    shape = sight.dims(node.inputs[0])
    if shape is None or node.domain or node.graph is not sight.op.graph or len(node.inputs) < 4:
        return None
    starts, ends, axes, steps = (
        [1] if v is None else sight.ints(v) for v in (*node.inputs, None)[1:5]
    )
    if any(v is None or len(v) != 1 for v in (starts, ends, axes)) or steps != [1]:
        return None
    axis = axes[0] % len(shape)
    size = shape[axis]
    if not isinstance(size, int):
        return None
    begin, end = (min(max(i + size if i < 0 else i, 0), size) for i in (starts[0], ends[0]))
    return (axis, begin, end) if begin < end else None
