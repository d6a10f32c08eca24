"""What is added to what a kernel of ours has just written: the kernel can add it itself.

    d = NormalizationGrad(…)      total = Add(other, d)   →   total = NormalizationGrad(…, other)
    y = LinearTraining(X, W, B)   total = Add(x, y)       →   total = LinearTraining(X, W, B, x)
    y = Conv(X, W, B)             total = Add(x, y)       →   total = FusedConv(X, W, B, x)

So it is where a residual layer ends, and backwards where it begins; at DenseNets; at queries, keys and values of one
tensor, whose gradients are added. One node less, and one pass over memory.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxgrad.graph.infer import dims

_DOMAIN = "com.microsoft"
# operator -> where it takes what is added
_ADDED = {
    ("", "Conv"): 3,  # as FusedConv, onnxruntime's own
    (_DOMAIN, "GroupNormalizationGrad"): 4,
    (_DOMAIN, "LayerNormalizationGrad"): 5,
    (_DOMAIN, "LinearGrad"): 3,
    (_DOMAIN, "LinearTraining"): 3,
    (_DOMAIN, "SimplifiedLayerNormalizationGrad"): 4,
}


def join_sums(graph: ir.Graph) -> int:
    """Join sums to the kernels before them; return how many. What is added must be there when the kernel begins."""
    place = {node: i for i, node in enumerate(graph)}
    joined = 0
    for node in list(graph):
        if node.op_type != "Add" or node.domain or node.outputs[0].is_graph_output():
            continue
        for written, other in (node.inputs, node.inputs[::-1]):
            if _adds(written, other, place):
                _join(node, written, other)
                joined += 1
                break
    return joined


def _adds(written: ir.Value | None, other: ir.Value | None, place: dict[ir.Node, int]) -> bool:
    kernel = None if written is None or other is None else written.producer()
    at = None if kernel is None else _ADDED.get((kernel.domain, kernel.op_type))
    if at is None or kernel not in place:
        return False
    if kernel.op_type == "Conv" and written.dtype != ir.DataType.FLOAT:
        return False  # the only type that FusedConv has
    free = len(kernel.inputs) <= at
    alone = len(written.uses()) == 1 and not written.is_graph_output()
    if not free or not alone or written is not kernel.outputs[0] or written.dtype != other.dtype:
        return False
    shape = dims(written)
    if shape is None or None in shape or dims(other) != shape:
        return False
    maker = other.producer()
    return maker is None or (maker in place and place[maker] < place[kernel])


def _join(node: ir.Node, written: ir.Value, other: ir.Value) -> None:
    kernel = written.producer()
    node.outputs[0].replace_all_uses_with(written)
    node.graph.remove(node, safe=True)
    at = _ADDED[kernel.domain, kernel.op_type]
    if kernel.op_type == "Conv":
        kernel.op_type, kernel.domain = "FusedConv", _DOMAIN
    kernel.resize_inputs(at + 1)
    kernel.replace_input_with(at, other)
