"""Products with weights in small integers, by kernels that unpack them in the cache.

onnxruntime's own keep a second copy of the weights in another order, or unpack all of one at every call.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxgrad.graph.patterns.matching import Sight


def see_packed(sight: Sight, node: ir.Node) -> str | None:
    """MatMulNBits and MatMulBnb4, with weights that nothing orders anew."""
    see = {"MatMulNBits": _nbits, "MatMulBnb4": _bnb4}.get(node.op_type)
    if see is None or node.domain != "com.microsoft" or not sight.is_float(node.outputs[0]):
        return None
    product = see(sight, node)
    if product is None:
        return None
    sight.replace(node.outputs[0], product)
    return f"{node.op_type}Training"


def _nbits(sight: Sight, node: ir.Node) -> ir.Value | None:
    A, B, scales, zeros, order, bias = (*node.inputs, None, None, None)[:6]
    if order is not None:
        return None
    settings = {n: int(node.attributes[n].value) for n in ("K", "N", "block_size")}
    settings["bits"] = int(sight.attribute(node, "bits", 4))
    packed = zeros is None or zeros.dtype == ir.DataType.UINT8
    zeros = (zeros, None) if packed else (None, zeros)
    product = sight.op.MatMulNBitsTraining(A, B, scales, *zeros, **settings)
    return product if bias is None else sight.op.Add(product, bias)


def _bnb4(sight: Sight, node: ir.Node) -> ir.Value | None:
    if not sight.attribute(node, "transB", 1):
        return None
    names = ("K", "N", "block_size", "quant_type")
    settings = {n: int(node.attributes[n].value) for n in names}
    return sight.op.MatMulBnb4Training(*node.inputs[:3], **settings)
