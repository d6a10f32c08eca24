"""A new head: the last layer of a classifier, made anew for another number of classes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from onnxgrad.errors import ModelError
from onnxgrad.model.change import Change
from onnxgrad.model.source import OriginalModel
from onnxgrad.notes import Note

# What may stand behind the last layer: it works element by element, or along the classes.
_BEHIND = {"Softmax", "LogSoftmax", "Sigmoid", "Identity", "Cast", "Flatten", "Squeeze", "Dropout"}


@dataclass(frozen=True)
class _Layer:
    """The last layer: its nodes, its tensors, and along which axis of the weight the classes lie."""

    nodes: list[onnx.NodeProto]
    weight: str
    bias: str | None
    axis: int
    values: list[str]  # from the layer's product to the output: their class axis changes


class Head(Change):
    """Replaces the last layer by one for `classes` classes; a Softmax behind it stays.

    The layer is a Gemm, a MatMul with or without an Add, or a convolution; its weights are drawn anew
    (uniform within ±1/√inputs, as PyTorch does) and its bias is zero.

    Raises ModelError for a model that ends otherwise.
    """

    def __init__(self, classes: int, output: str | None = None, seed: int = 0):
        if classes < 1:
            raise ValueError(f"head: classes is {classes!r}, expected at least 1")
        self.classes, self.output, self.seed = int(classes), output, seed
        self.names: list[str] = []
        self.before = 0

    def rewrite(self, source: OriginalModel) -> None:
        layer = last_layer(source, self.output)
        tensor = source.tensors[layer.weight]
        self.before = tensor.dims[layer.axis]
        shape = list(tensor.dims)
        shape[layer.axis] = self.classes
        bound = 1 / np.sqrt(max(1, np.prod(shape) // self.classes))
        drawn = np.random.default_rng([self.seed, 11]).uniform(-bound, bound, shape)
        _set(tensor, drawn)
        self.names = [layer.weight]
        if layer.bias is not None:
            _set(source.tensors[layer.bias], np.zeros(self.classes))
            self.names.append(layer.bias)
        _resize_values(source.proto.graph, layer.values, self.before, self.classes)
        source.refresh()

    def describe(self) -> Iterable[Note]:
        yield Note(
            "head",
            self.names[0],
            f"the last layer ({', '.join(map(repr, self.names))}) is new: {self.classes} classes in the "
            f"place of {self.before}, drawn by seed {self.seed}",
        )


def _set(tensor: onnx.TensorProto, array: np.ndarray) -> None:
    kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    tensor.CopyFrom(onnx.numpy_helper.from_array(array.astype(kind), tensor.name))


def _resize_values(graph: onnx.GraphProto, names: list[str], old: int, new: int) -> None:
    """Let the declared shapes of the values behind the layer have the new number of classes."""
    for info in (*graph.value_info, *graph.output):
        if info.name in names:
            for dim in info.type.tensor_type.shape.dim:
                if dim.dim_value == old:
                    dim.dim_value = new
                    break


def last_layer(source: OriginalModel, output: str | None = None) -> _Layer:
    """Find the layer that an output of the model ends in; the first float output by default."""
    graph = source.proto.graph
    made = {name: node for node in graph.node for name in node.output}
    value = output or _first_float(graph)
    if value not in {o.name for o in graph.output}:
        listed = ", ".join(repr(o.name) for o in graph.output)
        raise ModelError(f"a new head: the model has no output {value!r}; its outputs are {listed}")
    passed = [value]
    while (node := made.get(value)) is not None and node.op_type in _BEHIND and not node.domain:
        value = node.input[0]
        passed.append(value)
    layer = None if node is None or node.domain else _layer(node, made, source, passed)
    if layer is None:
        end = "nothing" if node is None else f"{node.op_type} (node {node.name or value!r})"
        raise ModelError(
            f"a new head needs a model that ends in Gemm, MatMul, MatMul and Add, or Conv with weights "
            f"of its own; this one ends in {end}"
        )
    return layer


def _layer(node, made, source: OriginalModel, passed: list[str]) -> _Layer | None:
    known = source.tensors
    if node.op_type == "Gemm" and node.input[1] in known:
        turned = any(a.name == "transB" and a.i for a in node.attribute)
        bias = node.input[2] if len(node.input) > 2 and node.input[2] in known else None
        return _Layer([node], node.input[1], bias, 0 if turned else 1, passed)
    if node.op_type == "Conv" and node.input[1] in known:
        bias = node.input[2] if len(node.input) > 2 and node.input[2] in known else None
        return _Layer([node], node.input[1], bias, 0, passed)
    if node.op_type == "MatMul" and node.input[1] in known:
        return _Layer([node], node.input[1], None, len(known[node.input[1]].dims) - 1, passed)
    if node.op_type == "Add":
        return _sum(node, made, source, passed)
    return None


def _sum(node, made, source: OriginalModel, passed: list[str]) -> _Layer | None:
    """MatMul(x, W) + b, either way round."""
    for product, bias in (node.input, reversed(node.input)):
        first = made.get(product)
        if bias in source.tensors and first is not None and first.op_type == "MatMul":
            found = _layer(first, made, source, [*passed, product])
            if found is not None and list(source.tensors[bias].dims)[-1:] == [
                source.tensors[found.weight].dims[found.axis]
            ]:
                return _Layer([first, node], found.weight, bias, found.axis, found.values)
    return None


def _first_float(graph: onnx.GraphProto) -> str:
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)
    for value in graph.output:
        if value.type.tensor_type.elem_type in floats:
            return value.name
    raise ModelError("a new head: the model has no float output")
