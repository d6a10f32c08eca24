"""The last product of a model and the cross entropy of its rows: one operator that never has all scores.

Before: scores = X·W (MatMul, Gemm or MatMulNBits with a frozen W), rows = Reshape(scores, [-1, N]),
loss = SoftmaxCrossEntropyLoss(rows, labels). After: loss = LinearCrossEntropy(X, labels, W), which works on a few
rows at a time. Only for vocabularies: with few classes the scores are small.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxgrad.graph.patterns.matching import Sight

FEWEST = 4096  # classes


def see_scores(sight: Sight, node: ir.Node) -> str | None:
    """Begin at the loss."""
    if node.op_type != "SoftmaxCrossEntropyLoss" or node.domain or len(node.inputs) != 2:
        return None
    if len(node.outputs) > 1 and node.outputs[1].uses():
        return None
    reduction = sight.attribute(node, "reduction", "mean")
    scores, labels = _rows(sight, node.inputs[0]), node.inputs[1]
    maker = None if scores is None else scores.producer()
    if maker is None or reduction == "none" or not sight.is_float(scores):
        return None
    product = _PRODUCTS.get((maker.domain, maker.op_type), lambda *_: None)(sight, maker)
    if product is None:
        return None
    op_type, X, given, settings = product
    op, ignored = sight.op, sight.attribute(node, "ignore_index", None)
    rows = op.Reshape(X, op.Concat([-1], op.dim(X, op.rank(X) - 1), axis=0))
    given = [*given, None if ignored is None else op.constant(np.array(ignored, np.int64))]
    loss, _ = op(op_type, rows, labels, *given, **settings, reduction=reduction, outputs=2)
    sight.replace(node.outputs[0], loss)
    return op_type


def _rows(sight: Sight, value: ir.Value) -> ir.Value | None:
    """The scores before they were made one row per label; None where something else reads them."""
    if not sight.read_once(value):
        return None
    reshape = sight.maker(value, "Reshape")
    if reshape is None:
        return value
    whole = reshape.inputs[0]
    before, after = sight.dims(whole), sight.op.dims(value)
    kept = before is not None and after is not None and len(after) == 2 and before[-1] == after[-1]
    return whole if kept and sight.read_once(whole) else None


def _frozen(sight: Sight, value: ir.Value) -> bool:
    return value.is_initializer() and not value.is_graph_input() and value not in sight.variables


def _plain(sight: Sight, X: ir.Value, W: ir.Value, transposed: int):
    shape = sight.dims(W)
    if not _frozen(sight, W) or shape is None or len(shape) != 2 or sight.op.rank(X) < 2:
        return None
    classes = shape[0 if transposed else 1]
    enough = isinstance(classes, int) and classes >= FEWEST
    return ("LinearCrossEntropy", X, [W], {"transB": transposed}) if enough else None


def _matmul(sight: Sight, node: ir.Node):
    X, W = node.inputs
    if sight.maker(W, "Transpose") is not None and len(sight.dims(W) or ()) == 2:
        return _plain(sight, X, W.producer().inputs[0], 1)  # a table of tokens, used again
    return _plain(sight, X, W, 0)


def _gemm(sight: Sight, node: ir.Node):
    usual = {"alpha": 1.0, "beta": 1.0, "transA": 0}
    changed = any(sight.attribute(node, name, value) != value for name, value in usual.items())
    if changed or (len(node.inputs) > 2 and node.inputs[2] is not None):
        return None
    return _plain(sight, *node.inputs[:2], int(sight.attribute(node, "transB", 0)))


def _nbits(sight: Sight, node: ir.Node):
    A, B, scales, zeros, order, bias = (*node.inputs, None, None, None)[:6]
    given = [v for v in (B, scales, zeros) if v is not None]
    settings = {name: int(node.attributes[name].value) for name in ("K", "N", "block_size")}
    unusual = order is not None or bias is not None or settings["N"] < FEWEST
    if unusual or not all(_frozen(sight, v) for v in given):
        return None
    settings["bits"] = int(sight.attribute(node, "bits", 4))
    packed = zeros is None or zeros.dtype == ir.DataType.UINT8
    zeros = (zeros, None) if packed else (None, zeros)
    return "MatMulNBitsCrossEntropy", A, [B, scales, *zeros], settings


_PRODUCTS = {
    ("", "MatMul"): _matmul, ("", "Gemm"): _gemm, ("com.microsoft", "MatMulNBits"): _nbits,
}  # fmt: skip
