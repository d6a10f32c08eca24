"""Gates: tanh(a)·sigmoid(b) and a·sigmoid(b), a and b the halves of one tensor (WaveNet, gated linear units)."""

from __future__ import annotations

import onnx_ir as ir

from onnxgrad.graph.patterns.matching import Sight
from onnxgrad.graph.patterns.splits import whole_of


def see_gate(sight: Sight, node: ir.Node) -> str | None:
    """Begin at the product; its halves come from a Split in two, or from two slices that make up a tensor."""
    if node.op_type != "Mul" or node.domain or not sight.is_float(node.outputs[0]):
        return None
    for what, gate in (node.inputs, node.inputs[::-1]):
        sigmoid = sight.maker(gate, "Sigmoid")
        if sigmoid is None or not sight.read_once(gate):
            continue
        tanh = sight.maker(what, "Tanh")
        if tanh is not None and not sight.read_once(what):
            continue
        a, b = what if tanh is None else tanh.inputs[0], sigmoid.inputs[0]
        whole = whole_of(sight, a, b)
        if whole is not None:
            x, axis = whole
            form = "linear" if tanh is None else "tanh"
            sight.replace(node.outputs[0], sight.op.GateTraining(x, axis=axis, form=form))
            for value in (gate, what):
                sight.let_go(value)
            return "GateTraining"
    return None
