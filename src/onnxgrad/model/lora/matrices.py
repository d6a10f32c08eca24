"""The weight of a layer as a float matrix, whatever form the model keeps it in; and back where that is float.

Formats: MatMulNBits keeps W [N, K] in blocks along K, low bits of a byte first, W = (q - z)·scale; MatMulBnb4
keeps the codes of W [N, K] one after the other, high nibble first, W = table[code]·absmax.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnxgrad.errors import AdapterError
from onnxgrad.graph.dynamic import dynamic_ends
from onnxgrad.model.lora.layers import Layer

# The quantiles of a normal distribution, scaled to [-1, 1] (QLoRA, appendix E).
NF4 = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
])  # fmt: skip
_HALF = [0.0, 0.00520833333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25]
FP4 = np.array([*_HALF, *(-x for x in _HALF)])


def matrix(layer: Layer) -> np.ndarray:
    """Return W as float64: [in, out], [rows, size] of a table, [in·k..., out] of a convolution."""
    node = layer.places[0].node
    reader = _READERS.get(node.op_type)
    found = reader(node) if reader is not None else _plain(layer)
    if layer.kind == "conv":
        return found.reshape(layer.fan_out, -1).T
    return found.T if layer.weight.transposed and reader is None else found


def delta(layer: Layer, a: np.ndarray, b: np.ndarray, scale: float) -> np.ndarray:
    """Return s·A·B as `matrix` has it, in float64."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    if layer.kind == "conv":
        a, b = a.reshape(len(a), -1).T, b.reshape(len(b), -1).T
    return scale * (a @ b)


def column_norms(layer: Layer) -> np.ndarray:
    """Return ‖W‖² of each column."""
    return np.square(matrix(layer)).sum(0)


def as_kept(layer: Layer, new: np.ndarray) -> np.ndarray:
    """Return a matrix in the layout and type of the layer's own tensor, which must be of floats."""
    if not layer.weight.is_float:
        raise AdapterError(
            f"lora: {layer.name!r} is kept in {layer.weight.form}, into which a branch cannot be merged: "
            "rounding again would lose what was learned; write an adapter instead"
        )
    tensor = ir.convenience.get_const_tensor(layer.weight.value)
    new = new / layer.weight.factor
    if layer.kind == "conv":
        new = new.T.reshape(tensor.shape)
    elif layer.weight.transposed:
        new = new.T
    return np.ascontiguousarray(new, dtype=tensor.numpy().dtype)


def _array(value: ir.Value, what: str) -> np.ndarray:
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is None:
        raise AdapterError(f"lora: {what} {value.name!r} is not a constant of the model")
    return tensor.numpy()


def _plain(layer: Layer) -> np.ndarray:
    """Float weights, and integers behind a DequantizeLinear."""
    kept = _array(layer.weight.value, "the weight").astype(np.float64)
    value = layer.weight.read
    while value is not layer.weight.value:
        node = value.producer()
        if node.op_type == "DequantizeLinear":
            kept = _dequantized(node, kept)
        value = node.inputs[0]
    return kept * layer.weight.factor


def _dequantized(node: ir.Node, q: np.ndarray) -> np.ndarray:
    scale = _array(node.inputs[1], "the scale").astype(np.float64)
    zero = np.zeros_like(scale)
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        zero = _array(node.inputs[2], "the zero point").astype(np.float64)
    axis = node.attributes["axis"].value if "axis" in node.attributes else 1
    block = node.attributes["block_size"].value if "block_size" in node.attributes else 0
    if block:
        cut = [slice(None)] * q.ndim
        cut[axis] = slice(0, q.shape[axis])
        scale, zero = (np.repeat(x, block, axis)[tuple(cut)] for x in (scale, zero))
    elif scale.ndim == 1:
        shape = [-1 if i == axis % q.ndim else 1 for i in range(q.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return (q - zero) * scale


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Bytes [..., n] -> integers [..., n·8/bits], the lowest bits of a byte first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    whole = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return whole.reshape(*packed.shape[:-1], -1)


def _matmul_nbits(node: ir.Node) -> np.ndarray:
    K, N, block = (int(node.attributes[n].value) for n in ("K", "N", "block_size"))
    bits = int(node.attributes["bits"].value) if "bits" in node.attributes else 4
    blocks = -(-K // block)
    q = unpacked(_array(node.inputs[1], "the weight").reshape(N, -1), bits).astype(np.float64)
    scale = _array(node.inputs[2], "the scales").astype(np.float64).reshape(N, blocks, 1)
    zero: float | np.ndarray = float(1 << (bits - 1))
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        zero = _array(node.inputs[3], "the zero points").reshape(N, -1)
        if zero.dtype == np.uint8:
            zero = unpacked(zero, bits)[:, :blocks]
        zero = zero.astype(np.float64).reshape(N, blocks, 1)
    return ((q.reshape(N, blocks, block) - zero) * scale).reshape(N, -1)[:, :K].T


def _matmul_bnb4(node: ir.Node) -> np.ndarray:
    K, N, block, kind = (
        int(node.attributes[n].value) for n in ("K", "N", "block_size", "quant_type")
    )
    packed = _array(node.inputs[1], "the weight").reshape(-1)
    codes = np.stack([packed >> 4, packed & 15], axis=-1).reshape(-1)[: N * K]
    absmax = np.repeat(_array(node.inputs[2], "absmax").astype(np.float64), block)[: N * K]
    return ((NF4 if kind else FP4)[codes] * absmax).reshape(N, K).T


def _integers(node: ir.Node) -> np.ndarray:
    """MatMulInteger and ConvInteger: (Wq - zw)·sw."""
    q = _array(node.inputs[1], "the weight").astype(np.float64)
    _, _, scales = dynamic_ends(node)
    factors = scales.producer()
    constants = [v for v in factors.inputs if ir.convenience.get_const_tensor(v) is not None]
    if not constants:
        raise AdapterError(f"lora: the scale of {node.name!r} is not a constant of the model")
    scale = _array(constants[0], "the scale").astype(np.float64)
    zero = np.zeros(())
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        zero = _array(node.inputs[3], "the zero point").astype(np.float64)
    if node.op_type == "ConvInteger":
        shape = (-1, *(1 for _ in q.shape[1:]))
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return (q - zero) * scale


def _bytes(node: ir.Node) -> np.ndarray:
    """DynamicQuantizeMatMul: (Wq - zw)·sw of each column."""
    q, scale = (_array(v, "the weight").astype(np.float64) for v in list(node.inputs)[1:3])
    zero = np.zeros(())
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        zero = _array(node.inputs[3], "the zero point").astype(np.float64)
    return (q - zero) * scale


_READERS: dict[str, Callable[[ir.Node], np.ndarray]] = {
    "MatMulNBits": _matmul_nbits,
    "MatMulBnb4": _matmul_bnb4,
    "DynamicQuantizeMatMul": _bytes,
    "MatMulInteger": _integers,
    "ConvInteger": _integers,
}
