"""Integers and their scales in a file: what belongs together, and what the numbers stand for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir

from onnxgrad.graph.integers import RANGES


def is_quantised(model: onnx.ModelProto) -> bool:
    """Say whether a model has integers that stand for floats (QDQ form) already."""
    return any(n.op_type == "DequantizeLinear" for n in model.graph.node)


def is_constant(value: ir.Value) -> bool:
    """Say whether a value is an initializer with its numbers at hand."""
    return value.is_initializer() and value.const_value is not None


def is_pair(quantise: ir.Node | None, dequantise: ir.Node) -> bool:
    """Say whether a DequantizeLinear undoes a QuantizeLinear: the same scale, the same zero point."""
    if quantise is None or quantise.op_type != "QuantizeLinear" or quantise.domain:
        return False
    same = quantise.inputs[1:3] == dequantise.inputs[1:3]
    return same and type_of(quantise) in RANGES


def type_of(quantise: ir.Node) -> ir.DataType | None:
    """Return the type of a QuantizeLinear's integers."""
    if len(quantise.inputs) > 2 and quantise.inputs[2] is not None:
        return quantise.inputs[2].dtype
    kind = attribute(quantise, "output_dtype", 0)
    return ir.DataType(kind) if kind else ir.DataType.UINT8


def attribute(node: ir.Node, name: str, default: int) -> int:
    """Return an integer attribute."""
    return int(node.attributes[name].value) if name in node.attributes else default


def along(scale: np.ndarray, array: np.ndarray, axis: int, block: int) -> np.ndarray:
    """Return the scale of every element: one for all, one for each index of an axis or block of it."""
    if block:
        repeated = np.repeat(scale, block, axis=axis)
        return np.take(repeated, np.arange(array.shape[axis]), axis=axis)
    if scale.size == 1:
        return scale.reshape(())
    shape = [1] * array.ndim
    shape[axis] = -1
    return scale.reshape(shape)


def dequantised(node: ir.Node) -> np.ndarray:
    """Return what the integers of a DequantizeLinear stand for: (q - z)·s."""
    integers = node.inputs[0].const_value.numpy().astype(np.float64)
    axis, block = attribute(node, "axis", 1), attribute(node, "block_size", 0)
    scale = along(node.inputs[1].const_value.numpy().astype(np.float64), integers, axis, block)
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        zero = node.inputs[2].const_value.numpy().astype(np.float64)
        integers = integers - along(zero, integers, axis, block)
    return (integers * scale).astype(np.float32)


def initializer(model: ir.Model, name: str, array: np.ndarray) -> ir.Value:
    """Add a tensor to a graph, under its name or one that is free."""
    taken = {v.name for n in model.graph for v in n.outputs} | set(model.graph.initializers)
    while name in taken:
        name += ".float"
    value = ir.Value(name=name, const_value=ir.tensor(np.array(array, order="C"), name=name))
    value.dtype, value.shape = ir.DataType.from_numpy(array.dtype), ir.Shape(array.shape)
    model.graph.register_initializer(value)
    return value


def factors(bias: ir.Value) -> tuple[ir.Node, ir.Node] | None:
    """Return the quantisers of the activation and the weight that a bias is added to the product of.

    None where its scale is its own: another use, or a weight in blocks.
    """
    uses = bias.uses()
    if len(uses) != 1 or uses[0][1] != 2 or uses[0][0].op_type not in _WITH_BIAS:
        return None
    nodes = [value.producer() for value in uses[0][0].inputs[:2]]
    if any(n is None or n.op_type not in ("DequantizeLinear", "FakeQuant") for n in nodes):
        return None
    return None if any(attribute(n, "block_size", 0) for n in nodes) else (nodes[0], nodes[1])


_WITH_BIAS = ("Conv", "Gemm", "ConvTranspose")


def product(
    numbers: Callable[[str], np.ndarray], names: tuple[str, str], like: onnx.TensorProto
) -> np.ndarray:
    """Return the scale of a bias: that of the activation times that of the weight."""
    scale = numbers(names[0]).astype(np.float64) * numbers(names[1]).astype(np.float64)
    return np.broadcast_to(scale, tuple(like.dims)).astype(np.float32)


def store(tensor: onnx.TensorProto, array: np.ndarray) -> None:
    """Put integers where a tensor of a file keeps its numbers; 4 bits are packed in pairs."""
    kept = ir.to_proto(ir.Tensor(array, dtype=ir.DataType(tensor.data_type), name=tensor.name))
    tensor.CopyFrom(kept)
