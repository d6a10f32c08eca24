"""softmax(Q·Kᵀ·scale + mask)·V as exporters write it: products, transpositions, and the split of packed projections."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnxgrad.graph.patterns.heads import Heads, groups_of, keys_of, packed_of, queries_of
from onnxgrad.graph.patterns.matching import Sight

_LOW = -1e30  # a score with this added has a weight of 0
_DOMAIN = "com.microsoft"


@dataclass
class Scores:
    """Q·Kᵀ·scale + masks."""

    product: ir.Node
    scale: float = 1.0
    masks: list[ir.Value] = field(default_factory=list)


def see_attention(sight: Sight, node: ir.Node) -> str | None:
    """Begin at the product of the weights and V."""
    if node.op_type != "MatMul" or node.domain or not sight.is_float(node.outputs[0]):
        return None
    weights, values = node.inputs
    softmax, dropout = _softmax(sight, weights)
    scores = None if softmax is None else _scores(sight, softmax.inputs[0])
    rank = len(sight.dims(node.outputs[0]) or ())
    if scores is None or rank not in (3, 4):
        return None
    queries, factor = sight.unscaled(scores.product.inputs[0])
    keys = keys_of(sight, scores.product.inputs[1])
    if keys is None or sight.dims(queries) is None or sight.dims(values) is None:
        return None
    settings = _settings(sight, queries, scores.scale * factor * keys.factor, dropout)
    if settings is None:
        return None
    mask, causal = _mask(sight, scores)
    heads = groups_of(sight, queries_of(sight, queries), keys, queries_of(sight, values))
    if heads is None:
        return None
    key = dropout.inputs[1] if dropout is not None else None
    _write(sight, node.outputs[0], heads, (mask, key), {**settings, "causal": causal})
    return "AttentionTraining"


def _softmax(sight: Sight, value: ir.Value) -> tuple[ir.Node | None, ir.Node | None]:
    """The Softmax over the last axis that made the weights, and the dropout behind it."""
    dropout = None
    if sight.read_once(value):
        dropout = sight.maker(value, "SeededDropout", domain=_DOMAIN)
        value = value if dropout is None else dropout.inputs[0]
    guarded = _guarded(sight, value) if sight.read_once(value) else None
    if guarded is None and not sight.read_once(value):
        return None, None
    value = value if guarded is None else guarded
    node = sight.maker(value, "Softmax")
    shape = None if node is None else sight.dims(value)
    if shape is None or sight.op.opset < 13:
        return None, None
    last = sight.attribute(node, "axis", -1) in (-1, len(shape) - 1)
    return (node, dropout) if last else (None, None)


def _guarded(sight: Sight, value: ir.Value) -> ir.Value | None:
    """w of Where(IsNaN(w), 0, w), which nobody else reads: rows that may read no key, which the operator makes 0."""
    node = sight.maker(value, "Where")
    condition, zero, weights = node.inputs if node is not None else (None,) * 3
    asked = sight.maker(condition, "IsNaN") if sight.read_once(condition) else None
    if asked is None or asked.inputs[0] is not weights or sight.scalar(zero) != 0:
        return None
    alone = len(weights.uses()) == 2 and not weights.is_graph_output()
    return weights if alone and weights not in sight.variables else None


def _scores(sight: Sight, value: ir.Value) -> Scores | None:
    """Read scores from the softmax back to the product; whatever is added after the scale is a mask."""
    node = (
        sight.maker(value, "MatMul", "Mul", "Div", "Add", "Where")
        if sight.read_once(value)
        else None
    )
    if node is None or sight.dims(value) is None:
        return None
    if node.op_type == "MatMul":
        return Scores(node)
    if node.op_type in ("Mul", "Div"):
        inner, factor = sight.unscaled(value)
        found = None if inner is value else _scores(sight, inner)
        if found is None or found.masks:
            return None
        found.scale *= factor
        return found
    if node.op_type == "Where":
        return _hidden_scores(sight, node)
    for inner, mask in (node.inputs, node.inputs[::-1]):
        found = _scores(sight, inner) if sight.dims(inner) == sight.dims(value) else None
        if found is not None:
            found.masks.append(mask)
            return found
    return None


def _hidden_scores(sight: Sight, node: ir.Node) -> Scores | None:
    """Where(condition, scores, very low), or the other way round: the same as adding 0 or very low."""
    condition, yes, no = node.inputs
    for inner, low, hides in ((yes, no, False), (no, yes, True)):
        number = sight.scalar(low)
        if number is None or number > _LOW or sight.dims(inner) != sight.dims(node.outputs[0]):
            continue
        found = _scores(sight, inner)
        if found is not None:
            zero, far = np.zeros((), low.dtype.numpy()), np.asarray(number, low.dtype.numpy())
            found.masks.append(sight.op.Where(condition, *((far, zero) if hides else (zero, far))))
            return found
    return None


def _settings(
    sight: Sight, queries: ir.Value, scale: float, dropout: ir.Node | None
) -> dict | None:
    """Attributes of the operator; None where a float cannot hold the scale of a double."""
    width = sight.dims(queries)[-1]
    usual = 1 / math.sqrt(width) if isinstance(width, int) and width else math.inf
    single = queries.dtype == ir.DataType.FLOAT
    settings = {}
    if not math.isclose(scale, usual, rel_tol=1e-6 if single else 1e-13):
        if not scale or not (single or float(np.float32(scale)) == scale):
            return None
        settings["scale"] = scale
    if dropout is not None:
        settings["ratio"] = sight.attribute(dropout, "ratio", 0.5)
        settings["stream"] = sight.attribute(dropout, "stream", 0)
    return settings


def _mask(sight: Sight, scores: Scores) -> tuple[ir.Value | None, int]:
    """The sum of all masks but the causal one, and whether there is one."""
    shape = sight.dims(scores.product.outputs[0])
    others, causal = [], 0
    for mask in scores.masks:
        if _is_causal(sight.array(mask), shape):
            causal = 1
        else:
            others.append(mask)
    total = None
    for mask in others:
        total = mask if total is None else sight.op.Add(total, mask)
    return total, causal


def _is_causal(mask: np.ndarray | None, shape) -> bool:
    """0 where the key is not behind the row, very low elsewhere; the same for all heads and batches."""
    if mask is None or mask.ndim < 2 or mask.shape[-2:] != shape[-2:]:
        return False
    reads = np.tri(*mask.shape[-2:], dtype=bool)
    return not mask[..., reads].any() and bool((mask[..., ~reads] <= _LOW).all())


def _write(
    sight: Sight, out: ir.Value, heads: tuple[Heads, Heads, Heads], more: tuple, settings: dict
) -> None:
    """Put the operator in, with heads read where they lie, and answer in the form that is asked for."""
    op, (mask, key) = sight.op, more
    packed = packed_of(sight, *heads)
    tokens = packed is not None or all(h.tokens is not None for h in heads)
    if packed is not None:
        inputs = packed, None, None
    elif tokens:
        inputs = tuple(h.tokens for h in heads)
        settings = {**settings, "layout": "tokens"}
    else:
        inputs = tuple(h.as_heads(op) for h in heads)
    merged = len(sight.dims(out)) == 3  # batches and heads are one axis
    if merged:
        inputs = tuple(op.Unsqueeze(x, [0]) for x in inputs)
    y, _ = op.AttentionTraining(*inputs, mask, key, **settings, outputs=2)
    if merged:
        sight.replace(out, op.Squeeze(y, [0]))
        return
    n, h, rows, width = sight.dims(out)
    y.shape = ir.Shape((n, rows, h, width) if tokens else (n, h, rows, width))
    if not tokens:
        sight.replace(out, y)
        return
    readers = [u.node for u in out.uses()]
    joined = [
        n
        for n in readers
        if n.op_type == "Transpose" and tuple(n.attributes["perm"].value) == (0, 2, 1, 3)
    ]
    for node in joined:
        sight.replace(node.outputs[0], y)
    if len(joined) < len(readers) or out.is_graph_output():
        sight.replace(out, op.Transpose(y, perm=[0, 2, 1, 3]))
    sight.let_go(out)
