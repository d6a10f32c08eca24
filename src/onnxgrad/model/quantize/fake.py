"""An integer file that trains: floats through FakeQuant in the graph, integers in the file.

      file                                         trained graph
      int8 weight → DequantizeLinear            →  float weight → FakeQuant
      x → QuantizeLinear → DequantizeLinear     →  x → FakeQuant
      int32 bias → DequantizeLinear             →  float bias

A scale is learned as its logarithm: it stays positive, and a step changes it by a share of itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
import onnx_ir as ir

from onnxgrad.contracts import DOMAIN, OPSET
from onnxgrad.model.change import Change, Draft
from onnxgrad.model.quantize.integers import (
    RANGES,
    along,
    attribute,
    dequantised,
    factors,
    initializer,
    is_constant,
    is_pair,
    product,
    store,
    type_of,
)
from onnxgrad.model.roles import WEIGHT, Tensor
from onnxgrad.notes import Note

LOG_SCALE = ".log_scale"
# The integer kernels of a plain session add in another order and keep other roundings.
TOLERANCE = 5e-2


@dataclass(frozen=True)
class _Integers:
    """A tensor of integers in the file, and the float tensor that is trained in its place."""

    file: str
    trained: str
    scale: str
    zero: str | None
    axis: int
    block: int


@dataclass(frozen=True)
class _Bias:
    """A bias of 32 bits; its scale is that of the activation times that of the weight."""

    file: str
    trained: str
    scale: str
    factors: tuple[str, str] | None


class FakeQuantise(Change):
    """Trains a quantised model; see the top of this file.

    floats: the numbers that the integers were made from, by name; without one, training begins at
    what the integers stand for.
    """

    def __init__(self, floats: Mapping[str, np.ndarray] | None = None, learn_scales: bool = True):
        self.floats, self.learn_scales = dict(floats or {}), learn_scales
        self.weights: list[_Integers] = []
        self.biases: list[_Bias] = []
        self.activations = 0
        self.scales: dict[str, str] = {}  # scale -> its logarithm
        self._made: dict[str, ir.Value] = {}
        self._fixed: set[str] = set()  # scales and zero points that are not learned
        self._start: dict[str, np.ndarray] = {}  # trained tensor -> the numbers it begins with

    # ---- the trained graph

    def apply(self, model: ir.Model) -> None:
        graph = model.graph
        for node in [n for n in graph if n.op_type == "DequantizeLinear" and not n.domain]:
            source = node.inputs[0]
            if source is None or node.inputs[1] is None or not is_constant(node.inputs[1]):
                continue
            if source.is_initializer() and source.dtype == ir.DataType.INT32:
                self._bias(model, node)
            elif source.is_initializer() and source.dtype in RANGES:
                self._weight(model, node)
            elif is_pair(source.producer(), node):
                self._activation(model, node)
        model.opset_imports.setdefault(DOMAIN, OPSET)
        graph.sort()

    def _weight(self, model: ir.Model, node: ir.Node) -> None:
        integers, scale, zero = (*node.inputs, None)[:3]
        value = self._trained(model, node)
        axis, block = attribute(node, "axis", 1), attribute(node, "block_size", 0)
        self.weights.append(
            _Integers(integers.name, value.name, scale.name, zero and zero.name, axis, block)
        )
        self._fake(model, node, value, integers.dtype, axis, block)

    def _bias(self, model: ir.Model, node: ir.Node) -> None:
        integers, scale = node.inputs[:2]
        output = node.outputs[0]
        found = factors(output)
        output.name = f"{output.name}/as_integers"  # the float bias may want the name
        value = self._trained(model, node)
        ir.convenience.replace_all_uses_with(output, value)
        self.biases.append(_Bias(integers.name, value.name, scale.name, found))
        model.graph.remove(node, safe=True)

    def _trained(self, model: ir.Model, node: ir.Node) -> ir.Value:
        """Return the float tensor that is trained in the place of a DequantizeLinear's integers."""
        integers = node.inputs[0]
        name = integers.name.removesuffix("_quantized")
        start = self.floats.get(name)
        if start is None or start.shape != tuple(integers.shape):
            start = dequantised(node)
        value = initializer(model, name, start.astype(np.float32))
        self._start[value.name] = value.const_value.numpy()
        return value

    def _activation(self, model: ir.Model, node: ir.Node) -> None:
        quantise = node.inputs[0].producer()
        self._fake(
            model, node, quantise.inputs[0], node.inputs[0].dtype or type_of(quantise),
            attribute(quantise, "axis", 1), attribute(quantise, "block_size", 0),
        )  # fmt: skip
        if not quantise.outputs[0].uses():
            model.graph.remove(quantise, safe=True)
        self.activations += 1

    def _fake(self, model, node: ir.Node, x: ir.Value, dtype, axis: int, block: int) -> None:
        """Put a FakeQuant of `x` in the place of a DequantizeLinear."""
        low, high = RANGES[dtype]
        scale, zero = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
        attributes = [
            ir.AttrInt64("quant_min", low), ir.AttrInt64("quant_max", high),
            ir.AttrInt64("axis", axis), ir.AttrInt64("block_size", block),
        ]  # fmt: skip
        old = node.outputs[0]
        y = ir.Value(
            name=f"{old.name}/fake", shape=old.shape, type=ir.TensorType(ir.DataType.FLOAT)
        )
        inputs = [x, self._scale(model, scale), self._zero(model, scale, zero)]
        fake = ir.Node(
            DOMAIN, "FakeQuant", inputs, attributes, outputs=[y], name=f"{old.name}/fake"
        )
        model.graph.insert_before(node, fake)
        name = old.name
        ir.convenience.replace_all_uses_with(old, y, replace_graph_outputs=True)
        model.graph.remove(node, safe=True)
        y.name = name

    def _scale(self, model: ir.Model, scale: ir.Value) -> ir.Value:
        """Return the scale as the exponential of what is learned, or as it is."""
        if not self.learn_scales:
            self._fixed.add(scale.name)
            return scale
        if scale.name not in self._made:
            name = f"{scale.name}{LOG_SCALE}"
            numbers = scale.const_value.numpy().astype(np.float64)
            learned = initializer(model, name, np.log(numbers).astype(np.float32))
            exp = ir.Node("", "Exp", [learned], num_outputs=1, name=f"{name}/exp")
            exp.outputs[0].name = f"{name}/exp"
            exp.outputs[0].shape, exp.outputs[0].type = scale.shape, learned.type
            model.graph.append(exp)
            self.scales[scale.name], self._made[scale.name] = learned.name, exp.outputs[0]
        return self._made[scale.name]

    def _zero(self, model: ir.Model, scale: ir.Value, zero: ir.Value | None) -> ir.Value:
        name = f"{(zero or scale).name}/zero"
        if name not in self._made:
            numbers = (
                np.zeros(scale.const_value.shape, np.float32)
                if zero is None
                else zero.const_value.numpy().astype(np.float32)
            )
            self._made[name] = initializer(model, name, numbers)
            self._fixed.add(name)
        return self._made[name]

    # ---- what is said

    def judge(self, tensors: list[Tensor]) -> list[Tensor]:
        learned = {*self.scales.values(), *(w.trained for w in self.weights)}
        learned |= {b.trained for b in self.biases}
        return [self._judged(tensor, learned) for tensor in tensors]

    def _judged(self, tensor: Tensor, learned: set[str]) -> Tensor:
        if tensor.name in learned and tensor.possible:
            return replace(tensor, kind=WEIGHT, reason="")
        if tensor.name in self._fixed:
            return replace(tensor, kind="quantisation", reason="a scale of quantisation")
        return tensor

    def undecayed(self) -> Iterable[str]:
        return self.scales.values()

    def describe(self) -> Iterable[Note]:
        if not self.weights and not self.activations:
            return
        scales = (
            f"{len(self.scales)} scales are learned" if self.scales else "scales stay as they are"
        )
        yield Note(
            "quantised",
            "model",
            f"{len(self.weights)} weights and {self.activations} activations are quantised: they train "
            f"through their rounding and are written as integers; {scales}",
        )

    # ---- the file

    def write_back(self, draft: Draft) -> None:
        tensors = draft.tensors
        scales = {
            scale: np.exp(tensors.pop(log).astype(np.float64)).astype(np.float32)
            for scale, log in self.scales.items()
            if log in tensors
        }
        tensors.update(scales)
        known = {t.name: t for t in draft.proto.graph.initializer}

        def numbers(name: str) -> np.ndarray:
            return tensors[name] if name in tensors else onnx.numpy_helper.to_array(known[name])

        for weight in self.weights:
            if weight.trained in tensors or weight.scale in scales:
                array = tensors.pop(weight.trained, self._start[weight.trained])
                store(known[weight.file], self._integers(weight, array, numbers, known))
        for bias in self.biases:
            if bias.factors is not None:
                tensors[bias.scale] = product(numbers, bias.factors, known[bias.scale])
            array = tensors.pop(bias.trained, self._start[bias.trained]).astype(np.float64)
            whole = np.round(array / numbers(bias.scale).astype(np.float64))
            info = np.iinfo(np.int32)
            store(known[bias.file], np.clip(whole, info.min, info.max).astype(np.int32))
        draft.tolerance = max(draft.tolerance, TOLERANCE)

    def _integers(self, weight: _Integers, array: np.ndarray, numbers, known) -> np.ndarray:
        """q = clip(round(w/s) + z), with the quotient in float32 as FakeQuant has it."""
        dtype = ir.DataType(known[weight.file].data_type)
        low, high = RANGES[dtype]
        scale = along(numbers(weight.scale), array, weight.axis, weight.block)
        zero = 0 if weight.zero is None else along(
            numbers(weight.zero).astype(np.float64), array, weight.axis, weight.block
        )  # fmt: skip
        steps = np.round((array.astype(np.float32) / scale).astype(np.float64))
        return np.clip(steps + zero, low, high).astype(dtype.numpy())
