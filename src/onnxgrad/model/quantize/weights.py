"""Weights that onnxruntime's writer leaves alone, as integers: in blocks, and where activations stay float.

W float  →  W_quantized → DequantizeLinear (axis, block_size)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from onnxgrad.graph.integers import RANGES
from onnxgrad.model.quantize.integers import along

TYPES = {
    "int8": ir.DataType.INT8, "uint8": ir.DataType.UINT8, "int16": ir.DataType.INT16,
    "int4": ir.DataType.INT4, "uint4": ir.DataType.UINT4,
}  # fmt: skip


@dataclass(frozen=True)
class OwnWeight:
    """A type, the axis of the scales (None: one scale), and how many indices of it share one."""

    type: str
    axis: int | None
    block: int = 0


def quantise_weights(
    model: onnx.ModelProto, floats: Mapping[str, np.ndarray], wanted: Mapping[str, OwnWeight]
) -> None:
    """Write the weights `wanted` as integers, from their numbers `floats`; all that read one read its integers."""
    known = {t.name: t for t in model.graph.initializer}
    for name, own in wanted.items():
        scale, zero, integers = _integers(floats[name], own)
        kind = TYPES[own.type]
        made = {
            f"{name}_quantized": ir.Tensor(integers, dtype=kind),
            f"{name}_scale": ir.Tensor(scale),
            f"{name}_zero_point": ir.Tensor(zero, dtype=kind),
        }
        node = _reader(model, f"{name}_quantized")
        if node is None:
            node = _insert(model, name)
            model.graph.initializer.remove(known[name])
        del node.attribute[:]
        for attribute, value in (("axis", own.axis), ("block_size", own.block or None)):
            if value is not None:
                node.attribute.append(onnx.helper.make_attribute(attribute, value))
        for key, tensor in made.items():
            tensor.name = key
            if key in known:
                model.graph.initializer.remove(known[key])
            model.graph.initializer.append(ir.to_proto(tensor))


def _integers(array: np.ndarray, own: OwnWeight) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scales, zero points and integers: symmetric, the largest number of a scale at the end of the range."""
    low, high = RANGES[TYPES[own.type]]
    half = (high - low) // 2
    middle = low + half + 1
    largest = _largest(np.abs(array.astype(np.float32)), own)
    scale = np.where(largest > 0, largest / half, 1.0).astype(np.float32)
    axis = 0 if own.axis is None else own.axis
    wide = along(scale, array, axis, own.block)
    integers = np.clip(np.round(array / wide) + middle, low, high)
    kind = TYPES[own.type].numpy()
    return scale, np.full(scale.shape, middle, kind), integers.astype(kind)


def _largest(sizes: np.ndarray, own: OwnWeight) -> np.ndarray:
    if own.axis is None:
        return sizes.max(initial=0.0)
    if own.block:
        starts = np.arange(0, sizes.shape[own.axis], own.block)
        return np.maximum.reduceat(sizes, starts, axis=own.axis)
    return sizes.max(axis=tuple(i for i in range(sizes.ndim) if i != own.axis), initial=0.0)


def _reader(model: onnx.ModelProto, name: str) -> onnx.NodeProto | None:
    """Return the DequantizeLinear that reads a tensor."""
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] == name:
            return node
    return None


def _insert(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    """Put a DequantizeLinear before everything that reads a float tensor."""
    output = f"{name}_DequantizeLinear_Output"
    for node in model.graph.node:
        for place, value in enumerate(node.input):
            if value == name:
                node.input[place] = output
    inputs = [f"{name}_quantized", f"{name}_scale", f"{name}_zero_point"]
    new = onnx.helper.make_node(
        "DequantizeLinear", inputs, [output], name=f"{name}_DequantizeLinear"
    )
    model.graph.node.insert(0, new)
    return model.graph.node[0]
