"""The same model in double precision, where central differences are sharp."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

SINGLE, DOUBLE = ir.DataType.FLOAT, ir.DataType.DOUBLE


def to_double(model: ir.Model) -> ir.Model:
    """A copy of `model` in which every float tensor is a double. The runtime may lack kernels for it."""
    copy = model.clone()
    for value in (*copy.graph.inputs, *copy.graph.outputs):
        _widen(value)
    for value in copy.graph.initializers.values():
        if value.const_value is not None and value.dtype == SINGLE:
            value.const_value = ir.tensor(
                value.const_value.numpy().astype(np.float64), name=value.name
            )
            _widen(value)
    for node in copy.graph:
        for value in node.outputs:
            _widen(value)
        _widen_attributes(node)
    return copy


def _widen(value: ir.Value) -> None:
    """Give a value a new type: a clone shares its types with the original."""
    if value.dtype == SINGLE:
        value.type = ir.TensorType(DOUBLE)


def _widen_attributes(node: ir.Node) -> None:
    """Tensors that a node carries, and the types that Cast and its like name."""
    for name, attribute in list(node.attributes.items()):
        if attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype == SINGLE:
            wide = ir.tensor(attribute.value.numpy().astype(np.float64))
            node.attributes[name] = ir.AttrTensor(name, wide)
        elif name in ("to", "dtype") and attribute.value == SINGLE.value:
            node.attributes[name] = ir.AttrInt64(name, DOUBLE.value)
        elif attribute.type == ir.AttributeType.FLOAT and node.op_type == "Constant":
            wide = ir.tensor(np.float64(attribute.value))
            del node.attributes[name]
            node.attributes["value"] = ir.AttrTensor("value", wide)
