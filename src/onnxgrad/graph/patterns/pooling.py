"""MaxPool of a Relu: the largest of a window is the same before and after it, so the Relu can come last.

    y = MaxPool(Relu(x))   →   y = Relu(MaxPool(x)), one operator

Where the largest of a window is not above 0, neither order passes a gradient on; elsewhere both give it to the same
element. The Relu and its gradient then work on the few elements that a pool leaves, on the way.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxgrad.graph.patterns.matching import Sight

# What a Relu is read behind; a normalisation over groups takes its Relu along (groups.py).
_BEFORE = ("Conv", "BatchNormalization")
_MOST_AXES = 5


def see_pooled_relu(sight: Sight, node: ir.Node) -> str | None:
    """The Relu moves behind the pool, unless something else reads what it gives."""
    if node.op_type != "MaxPool" or node.domain or not sight.is_float(node.outputs[0]):
        return None
    relu = sight.maker(node.inputs[0], "Relu")
    if (
        relu is None
        or not sight.read_once(node.inputs[0])
        or any(o.uses() for o in node.outputs[1:])
    ):
        return None
    if sight.maker(relu.inputs[0], *_BEFORE) is None or not sight.read_once(relu.inputs[0]):
        return None
    shape = sight.dims(relu.inputs[0])
    settings = {k: a.value for k, a in node.attributes.items()}
    if shape is None or len(shape) > _MOST_AXES or settings.pop("storage_order", 0):
        return None
    pooled = sight.op.MaxPoolTraining(relu.inputs[0], **settings, activation="relu", outputs=2)
    sight.replace(node.outputs[0], pooled[0])
    return "MaxPoolTraining"
