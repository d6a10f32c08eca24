"""RMSNormalization and LayerNormalization that exporters write out in means, roots and products."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxgrad.graph.patterns.matching import Sight


def see_norm(sight: Sight, node: ir.Node) -> str | None:
    """Begin at the root: 1/√(mean(c²) + ε), c being x or x minus its mean."""
    if node.op_type != "Sqrt" or node.domain or not sight.is_float(node.outputs[0]):
        return None
    found = _mean_square(sight, node.inputs[0])
    if found is None:
        return None
    centred, epsilon = found
    x = _uncentred(sight, centred)
    value = _normalised(sight, node.outputs[0], centred)
    width = (sight.dims(centred) or (None,))[-1]
    alike = value is not None and sight.dims(value) == sight.dims(centred)
    if not alike or not isinstance(width, int):
        return None
    end, scale = _scaled(sight, value, width)
    if scale is None:
        scale = sight.op.constant(np.ones(width), value.dtype)
    if x is None:
        return _rms(sight, centred, scale, epsilon, end)
    return _layer(sight, x, scale, epsilon, end)


def _rms(sight: Sight, x: ir.Value, scale: ir.Value, epsilon: float, end: ir.Value) -> str | None:
    """SimplifiedLayerNormalization: onnxruntime has it for every opset, and it keeps the deviation."""
    if x.dtype != ir.DataType.FLOAT:
        return None
    y, _ = sight.op.emit(
        "SimplifiedLayerNormalization", [x, scale], {"axis": -1, "epsilon": epsilon}, 2
    )
    sight.replace(end, y)
    return "SimplifiedLayerNormalization"


def _layer(sight: Sight, x: ir.Value, scale: ir.Value, epsilon: float, end: ir.Value) -> str | None:
    """With a shift, if that comes next; opset 17 has the operator."""
    if sight.op.opset < 17 or x.dtype != ir.DataType.FLOAT:
        return None
    shift, reader = None, sight.reader(end)
    if reader is not None and reader.op_type == "Add" and not reader.domain:
        other = reader.inputs[1] if reader.inputs[0] is end else reader.inputs[0]
        if sight.dims(other) == sight.dims(scale):
            shift, end = other, reader.outputs[0]
    y = sight.op.emit("LayerNormalization", [x, scale, shift], {"axis": -1, "epsilon": epsilon})
    sight.replace(end, y)
    return "LayerNormalization"


def _mean_square(sight: Sight, value: ir.Value) -> tuple[ir.Value, float] | None:
    """c and ε of mean(c²) + ε, the mean over the last axis."""
    add = sight.maker(value, "Add")
    if add is None or not sight.read_once(value):
        return None
    for mean, small in (add.inputs, add.inputs[::-1]):
        epsilon, square = sight.scalar(small), _mean(sight, mean)
        if epsilon is None or square is None or not sight.read_once(square):
            continue
        power = sight.maker(square, "Pow")
        if power is not None and sight.scalar(power.inputs[1]) == 2.0:
            return power.inputs[0], epsilon
        product = sight.maker(square, "Mul")
        if product is not None and product.inputs[0] is product.inputs[1]:
            return product.inputs[0], epsilon
    return None


def _mean(sight: Sight, value: ir.Value) -> ir.Value | None:
    """x of the mean of x over its last axis, which is kept with size 1."""
    node = sight.maker(value, "ReduceMean")
    if node is None or not sight.attribute(node, "keepdims", 1):
        return None
    x = node.inputs[0]
    shape = sight.dims(x)
    axes = sight.attribute(node, "axes", None)
    if axes is None and len(node.inputs) > 1:
        axes = sight.ints(node.inputs[1])
    right = shape is not None and axes is not None and len(axes) == 1
    return x if right and axes[0] in (-1, len(shape) - 1) else None


def _uncentred(sight: Sight, value: ir.Value) -> ir.Value | None:
    """x of x − mean(x)."""
    node = sight.maker(value, "Sub")
    if node is None:
        return None
    x, mean = node.inputs
    return x if _mean(sight, mean) is x else None


def _normalised(sight: Sight, root: ir.Value, centred: ir.Value) -> ir.Value | None:
    """c/root."""
    node = sight.reader(root)
    if node is None or node.domain:
        return None
    if node.op_type == "Div" and node.inputs[0] is centred:
        return node.outputs[0]
    inverse = node.op_type == "Reciprocal" or (
        node.op_type == "Div" and node.inputs[1] is root and sight.scalar(node.inputs[0]) == 1.0
    )
    product = sight.reader(node.outputs[0]) if inverse else None
    if product is None or product.op_type != "Mul" or centred not in product.inputs:
        return None
    return product.outputs[0]


def _scaled(sight: Sight, value: ir.Value, width: int) -> tuple[ir.Value, ir.Value | None]:
    """value·scale, and the scale, where one of that width is all that reads the value; else the value alone."""
    node = sight.reader(value)
    if node is None or node.op_type != "Mul" or node.domain:
        return value, None
    scale = node.inputs[1] if node.inputs[0] is value else node.inputs[0]
    return (node.outputs[0], scale) if sight.dims(scale) == (width,) else (value, None)
