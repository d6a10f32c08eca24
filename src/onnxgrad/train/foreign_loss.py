"""A loss that comes as a graph of its own: an ONNX model or an onnxscript function."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir

from onnxgrad.graph import Builder, load
from onnxgrad.train.losses import NAMES, Function, Loss, Target


@dataclass(frozen=True)
class ModelLoss(Loss):
    """The first output of an ONNX model with two inputs: the output to judge, then the target."""

    model: Any

    def target(self, op: Builder, output: ir.Value, name: str) -> Target:
        graph = self._graph(op)
        value = graph.inputs[1]
        dims = None if value.shape is None else op.dims(value)
        dtype = (value.dtype or output.dtype).numpy()
        return Target(name, dtype, dims, of=output.name)

    def write(self, op: Builder, output: ir.Value, target: ir.Value) -> ir.Value:
        graph = self._graph(op)
        values: dict[ir.Value | None, Any] = {None: None}
        values.update(zip(graph.inputs, (output, target), strict=True))
        for value in graph.initializers.values():
            values[value] = op.constant(value.const_value.numpy(), value.dtype)
        for node in graph:
            attributes = {k: a.value for k, a in node.attributes.items()}
            inputs = [values[v] for v in node.inputs]
            flags = [bool(v.name) for v in node.outputs]
            made = op.emit(node.op_type, inputs, attributes, flags, node.domain)
            values.update(zip(node.outputs, made, strict=True))
        return values[graph.outputs[0]]

    def _graph(self, op: Builder) -> ir.Graph:
        graph = load(_at_opset(self.model, op.opset)).graph
        inputs = [v for v in graph.inputs if v.name not in graph.initializers]
        if len(inputs) != 2:
            names = ", ".join(repr(v.name) for v in inputs)
            raise ValueError(
                f"the loss model has {len(inputs)} inputs ({names}), "
                "expected two: the output to judge, then the target"
            )
        return graph


def _at_opset(model: Any, opset: int) -> Any:
    """Return the loss in the opset of the model that it joins."""
    proto = ir.to_proto(load(model))
    own = next((i.version for i in proto.opset_import if not i.domain), opset)
    return proto if own == opset else onnx.version_converter.convert_version(proto, opset)


def resolve(loss: Any) -> Loss:
    """Return the loss that a caller means by a name, an object, a function or a model.

    >>> resolve("mse")
    MSE(reduction='mean')
    """
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss.lower() in NAMES:
        return NAMES[loss.lower()]()
    if isinstance(loss, str) and not loss.endswith(".onnx"):
        names = ", ".join(NAMES)
        raise ValueError(f"loss is {loss!r}, expected one of {names}, or the path of a loss model")
    if isinstance(loss, (str, os.PathLike, bytes, onnx.ModelProto, ir.Model)):
        return ModelLoss(loss)
    if hasattr(loss, "to_model_proto"):  # an onnxscript function
        return ModelLoss(loss.to_model_proto())
    if callable(loss):
        return Function(loss)
    raise ValueError(
        f"loss is a {type(loss).__name__}, expected a name, a loss, a function or a model"
    )
