"""A Pad by zeros whose only use is a convolution: the convolution can pad by itself."""

from __future__ import annotations

import onnx_ir as ir

from onnxgrad.graph.patterns.matching import Sight

_FIRST_SPATIAL = 2


def see_padded_conv(sight: Sight, node: ir.Node) -> str | None:
    """Conv of a Pad: causal convolutions are exported so."""
    if node.op_type != "Conv" or node.domain or not sight.is_float(node.outputs[0]):
        return None
    pad = sight.maker(node.inputs[0], "Pad")
    if pad is None or sight.attribute(node, "auto_pad", "NOTSET") != "NOTSET":
        return None
    more = _zeros_around(sight, pad)
    if more is None:
        return None
    attributes = {k: a.value for k, a in node.attributes.items()}
    own = attributes.get("pads") or [0] * len(more)
    attributes["pads"] = [a + b for a, b in zip(own, more, strict=True)]
    inputs = [pad.inputs[0], *node.inputs[1:]]
    sight.replace(node.outputs[0], sight.op.emit("Conv", inputs, attributes))
    return "Conv"


def _zeros_around(sight: Sight, pad: ir.Node) -> list[int] | None:
    """What a Pad adds to the spatial axes, all begins and then all ends; None where it does anything else."""
    value = pad.inputs[2] if len(pad.inputs) > 2 else None
    if sight.attribute(pad, "mode", "constant") != "constant":
        return None
    if value is not None and sight.scalar(value) != 0.0:
        return None
    shape = sight.dims(pad.inputs[0])
    pads = sight.ints(pad.inputs[1]) if len(pad.inputs) > 1 else None
    if shape is None or pads is None:
        return None
    axes = sight.ints(pad.inputs[3]) if len(pad.inputs) > 3 else list(range(len(shape)))
    if axes is None or len(pads) != 2 * len(axes):
        return None
    ends = [[0] * len(shape), [0] * len(shape)]
    for i, axis in enumerate(axes):
        ends[0][axis % len(shape)], ends[1][axis % len(shape)] = pads[i], pads[len(axes) + i]
    if any(sum(e[:_FIRST_SPATIAL]) or min(e) < 0 for e in ends):
        return None
    return ends[0][_FIRST_SPATIAL:] + ends[1][_FIRST_SPATIAL:]
