"""Formulas of gradient operators as ONNX functions, for sessions that do not know onnxgrad's library.

A session that does know it takes the kernels. Operators with a longer formula have none: a training model with them
needs `onnxgrad.session` or `onnxgrad.register`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import onnx

from onnxgrad.contracts import DOMAIN
from onnxgrad.dropin.old.old_ops import attributes

# of the mean of all samples: those of other reductions, with weights or ignored labels have none
_CROSS_ENTROPY_GRAD = """
SoftmaxCrossEntropyLossGrad <reduction> (dY, log_prob, label) => (d_logits)
{
    shape = Shape (log_prob)
    one = Constant <value_ints = [1]> ()
    depth = Gather (shape, one)
    choices = Constant <value_floats = [0.0, 1.0]> ()
    at_label = OneHot <axis = 1> (label, depth, choices)
    p = Exp (log_prob)
    d = Sub (p, at_label)
    size = Size (label)
    count = Cast <to = 1> (size)
    each = Div (dY, count)
    d_logits = Mul (d, each)
}
"""
CROSS_ENTROPY = {  # the number of inputs without weights and ignored labels
    "SoftmaxCrossEntropyLossInternal": 2,
    "SoftmaxCrossEntropyLossGrad": 3,
    "SoftmaxCrossEntropyLossInternalGrad": 3,
}
FORMULAS = {
    "ReluGrad": """
ReluGrad (dY, X) => (dX)
{
    zero = Constant <value_float = 0.0> ()
    on = Greater (X, zero)
    dX = Where (on, dY, zero)
}
""",
    "LeakyReluGrad": """
LeakyReluGrad <alpha> (dY, Y) => (dX)
{
    zero = Constant <value_float = 0.0> ()
    slope = Constant <value_float: float = @alpha> ()
    on = Greater (Y, zero)
    small = Mul (dY, slope)
    dX = Where (on, dY, small)
}
""",
    "SigmoidGrad": """
SigmoidGrad (dY, Y) => (dX)
{
    one = Constant <value_float = 1.0> ()
    rest = Sub (one, Y)
    slope = Mul (Y, rest)
    dX = Mul (dY, slope)
}
""",
    "TanhGrad": """
TanhGrad (dY, Y) => (dX)
{
    one = Constant <value_float = 1.0> ()
    square = Mul (Y, Y)
    slope = Sub (one, square)
    dX = Mul (dY, slope)
}
""",
    "SoftmaxGrad_13": """
SoftmaxGrad_13 <axis> (dY, Y) => (dX)
{
    number = Constant <value_int: int = @axis> ()
    one = Constant <value_ints = [1]> ()
    axes = Reshape (number, one)
    product = Mul (dY, Y)
    sum = ReduceSum <keepdims = 1> (product, axes)
    centred = Sub (dY, sum)
    dX = Mul (Y, centred)
}
""",
    "LogSoftmaxGrad_13": """
LogSoftmaxGrad_13 <axis> (dY, Y) => (dX)
{
    number = Constant <value_int: int = @axis> ()
    one = Constant <value_ints = [1]> ()
    axes = Reshape (number, one)
    sum = ReduceSum <keepdims = 1> (dY, axes)
    p = Exp (Y)
    share = Mul (p, sum)
    dX = Sub (dY, share)
}
""",
    "SoftmaxCrossEntropyLossInternal": """
SoftmaxCrossEntropyLossInternal <reduction> (scores, labels) => (output, log_prob)
{
    output, log_prob = SoftmaxCrossEntropyLoss <reduction: string = @reduction> (scores, labels)
}
""",
    "SoftmaxCrossEntropyLossGrad": _CROSS_ENTROPY_GRAD,
    "SoftmaxCrossEntropyLossInternalGrad": _CROSS_ENTROPY_GRAD.replace(
        "LossGrad", "LossInternalGrad"
    ),
}


def formulas(model: onnx.ModelProto) -> dict[str, str]:
    """Return the formulas for the operators of a model, where they hold for every node of a kind."""
    graph = model.graph
    values = (*graph.input, *graph.value_info)
    if any(v.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE for v in values):
        return {}  # their constants are float32
    kinds: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        if node.domain == DOMAIN and node.op_type in FORMULAS:
            kinds.setdefault(node.op_type, []).append(node)
    return {kind: FORMULAS[kind] for kind, nodes in kinds.items() if _plain(kind, nodes)}


def _plain(kind: str, nodes: Iterable[onnx.NodeProto]) -> bool:
    """Say whether nodes are of the form that a formula is written for."""
    settings = [(n, attributes(n)) for n in nodes]
    read = set(re.findall(r"@(\w+)", FORMULAS[kind]))
    if not all(read <= set(given) for _, given in settings):
        return False
    return kind not in CROSS_ENTROPY or all(
        len([i for i in node.input if i]) == CROSS_ENTROPY[kind]
        and given.get("reduction", b"mean") == b"mean"
        and "ignore_index" not in given
        for node, given in settings
    )
