"""An integer file that trains: floats through FakeQuant in the graph, integers in the file.

file                                         trained graph
int8 weight → DequantizeLinear            →  float weight → FakeQuant
x → QuantizeLinear → DequantizeLinear     →  x → FakeQuant
int32 bias → DequantizeLinear             →  float bias
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
import onnx_ir as ir

from onnxgrad.contracts import DOMAIN, OPSET
from onnxgrad.files.external import is_external
from onnxgrad.graph.integers import RANGES
from onnxgrad.model.change import Change, Draft
from onnxgrad.model.quantize.integers import (
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
from onnxgrad.model.quantize.scales import KINDS, Quantiser, Scales
from onnxgrad.model.roles import WEIGHT, Tensor
from onnxgrad.model.source import OriginalModel
from onnxgrad.notes import Note

# The integer kernels of a plain session add in another order and keep other roundings.
TOLERANCE = 5e-2
# Of a bias in integers: steps up to which its rounding is trained through, and the range that FakeQuant takes.
COARSE, WIDEST = 2**14, 2**20


@dataclass(frozen=True)
class _Integers:
    """A tensor of integers in the file, and the float tensor that is trained in its place."""

    file: str
    trained: str
    quantiser: Quantiser


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
    what the integers stand for. scales: "learned", "observed", "fixed", or "" for those of the file.
    notes: what there is to say about how the file came about.
    """

    def __init__(
        self,
        floats: Mapping[str, np.ndarray] | None = None,
        scales: str = "",
        notes: Iterable[Note] = (),
    ):
        self.floats, self._notes = dict(floats or {}), list(notes)
        self.scales = KINDS[scales]() if scales else Scales()
        self.weights: list[_Integers] = []
        self.biases: list[_Bias] = []
        self.activations = 0
        self._source: OriginalModel | None = None
        self._left: list[str] = []  # integers that stay as they are
        self._values: dict[str, ir.Value] = {}  # integers -> the float tensor in their place
        self._start: dict[str, np.ndarray] = {}  # trained tensor -> the numbers it begins with
        self._scale_of: dict[ir.Node, str] = {}  # FakeQuant -> the name of its scale in the file

    def rewrite(self, source: OriginalModel) -> None:
        self._source = source  # whose scales may lie in a data file

    # ---- the trained graph

    def apply(self, model: ir.Model) -> None:
        graph = model.graph
        for node in [n for n in graph.all_nodes() if n.op_type == "DequantizeLinear"]:
            if node.graph is graph and not node.domain and self._trains(node):
                self._replace(model, node)
            else:
                self._left.append(node.name or node.outputs[0].name)
        model.opset_imports.setdefault(DOMAIN, OPSET)
        graph.sort()

    def _trains(self, node: ir.Node) -> bool:
        """Say whether a DequantizeLinear can be trained through: constant scales, integers of a known kind."""
        source, *scales = node.inputs
        if source is None or not all(v is None or is_constant(v) for v in scales):
            return False
        if is_constant(source):
            return source.dtype in (*RANGES, ir.DataType.INT32)
        return is_pair(source.producer(), node)

    def _replace(self, model: ir.Model, node: ir.Node) -> None:
        source = node.inputs[0]
        if not source.is_initializer():
            self._activation(model, node)
        elif source.dtype == ir.DataType.INT32:
            self._bias(model, node)
        else:
            self._weight(model, node)

    def _weight(self, model: ir.Model, node: ir.Node) -> None:
        integers, value = node.inputs[0], self._trained(model, node)
        axis, block = attribute(node, "axis", 1), attribute(node, "block_size", 0)
        quantiser = Quantiser(value, *_scale_and_zero(node), integers.dtype, axis, block, True)
        if all(w.file != integers.name for w in self.weights):
            self.weights.append(_Integers(integers.name, value.name, quantiser))
        self._fake(model, node, quantiser)

    def _bias(self, model: ir.Model, node: ir.Node) -> None:
        integers, scale = node.inputs[:2]
        output = node.outputs[0]
        found = factors(output)
        output.name = f"{output.name}/as_integers"  # the float bias may want the name
        value = self._trained(model, node)
        read = value if found else self._rounded_bias(model, node, value)
        ir.convenience.replace_all_uses_with(output, read)
        names = found and tuple(self._scale_of.get(n, n.inputs[1].name) for n in found)
        self.biases.append(_Bias(integers.name, value.name, scale.name, names))
        model.graph.remove(node, safe=True)

    def _rounded_bias(self, model: ir.Model, node: ir.Node, value: ir.Value) -> ir.Value:
        """Put a FakeQuant behind a bias whose scale is its own, as that of a LayerNormalization is.

        Its integers may be few: the scale is a product of two coarse ones. Behind a convolution they are
        finer than the output's own steps, and the bias is trained as it is; so is one of very many steps.
        """
        scale = node.inputs[1]
        steps = np.abs(value.const_value.numpy() / scale.const_value.numpy())
        if steps.max(initial=0.0) > COARSE:
            return value
        zeros = np.zeros(scale.const_value.shape.numpy(), np.float32)
        zero = initializer(model, f"{value.name}.zero", zeros)
        self.scales.fixed |= {scale.name, zero.name}
        layout = dict(quant_min=-WIDEST, quant_max=WIDEST, axis=0)
        attributes = [ir.convenience.convert_attribute(k, v) for k, v in layout.items()]
        y = ir.Value(
            name=f"{value.name}/fake", shape=value.shape, type=ir.TensorType(ir.DataType.FLOAT)
        )
        inputs = [value, scale, zero]
        fake = ir.Node(DOMAIN, "FakeQuant", inputs, attributes, outputs=[y], name=y.name)
        model.graph.insert_before(node, fake)
        return y

    def _trained(self, model: ir.Model, node: ir.Node) -> ir.Value:
        """Return the float tensor that is trained in the place of a DequantizeLinear's integers."""
        integers = node.inputs[0]
        if integers.name not in self._values:
            name = integers.name.removesuffix("_quantized")
            start = self.floats.get(name)
            if start is None or start.shape != tuple(integers.shape):
                start = dequantised(node)
            value = initializer(model, name, start.astype(np.float32))
            self._start[value.name] = value.const_value.numpy()
            self._values[integers.name] = value
        return self._values[integers.name]

    def _activation(self, model: ir.Model, node: ir.Node) -> None:
        quantise = node.inputs[0].producer()
        axis, block = attribute(quantise, "axis", 1), attribute(quantise, "block_size", 0)
        dtype = node.inputs[0].dtype or type_of(quantise)
        x = quantise.inputs[0]
        quantiser = Quantiser(x, *_scale_and_zero(node), dtype, axis, block, is_constant(x))
        self._fake(model, node, quantiser)
        if not quantise.outputs[0].uses():
            model.graph.remove(quantise, safe=True)
        self.activations += 1

    def _fake(self, model: ir.Model, node: ir.Node, quantiser: Quantiser) -> None:
        """Put a FakeQuant in the place of a DequantizeLinear."""
        old = node.outputs[0]
        y = ir.Value(
            name=f"{old.name}/fake", shape=old.shape, type=ir.TensorType(ir.DataType.FLOAT)
        )
        settings = {**quantiser.layout(), **self.scales.attributes(quantiser.weight)}
        attributes = [ir.convenience.convert_attribute(k, v) for k, v in settings.items()]
        inputs = [quantiser.x, *self.scales.of(model, quantiser)]
        fake = ir.Node(
            DOMAIN, "FakeQuant", inputs, attributes, outputs=[y], name=f"{old.name}/fake"
        )
        self._scale_of[fake] = quantiser.scale.name
        model.graph.insert_before(node, fake)
        name = old.name
        ir.convenience.replace_all_uses_with(old, y, replace_graph_outputs=True)
        model.graph.remove(node, safe=True)
        y.name = name

    # ---- what is said

    def judge(self, tensors: list[Tensor]) -> list[Tensor]:
        learned = {*self.scales.trained.values(), *(w.trained for w in self.weights)}
        learned |= {b.trained for b in self.biases}
        return [self._judged(tensor, learned) for tensor in tensors]

    def _judged(self, tensor: Tensor, learned: set[str]) -> Tensor:
        if tensor.name in learned and tensor.possible:
            return replace(tensor, kind=WEIGHT, reason="")
        if tensor.name in self.scales.fixed:
            return replace(tensor, kind="quantisation", reason="a scale of quantisation")
        return tensor

    def undecayed(self) -> Iterable[str]:
        return self.scales.trained.values()

    def statistics(self) -> Mapping[str, str | None]:
        return self.scales.statistics

    def switches(self) -> Mapping[str, np.ndarray]:
        return self.scales.switches

    def begin_epoch(self, epoch: int) -> None:
        self.scales.begin_epoch(epoch)

    def describe(self) -> Iterable[Note]:
        yield from self._notes
        if self.weights or self.activations:
            yield Note(
                "quantised",
                "model",
                f"{len(self.weights)} weights and {self.activations} activations are quantised: they train "
                f"through their rounding and are written as integers; {self.scales.said}",
            )
        if self._left:
            listed = ", ".join(map(repr, self._left[:3])) + (" …" if len(self._left) > 3 else "")
            yield Note(
                "quantised",
                self._left[0],
                f"{len(self._left)} integer tensors stay as they are, inside branches or with scales that are "
                f"computed: {listed}",
            )

    # ---- the file

    def write_back(self, draft: Draft) -> None:
        tensors = draft.tensors
        known = {t.name: t for t in draft.proto.graph.initializer}
        changed = self.scales.numbers(tensors)
        for name, array in changed.items():
            store(known[name], array.astype(ir.DataType(known[name].data_type).numpy()))

        def numbers(name: str) -> np.ndarray:
            outside = is_external(known[name]) and self._source is not None
            return self._source.array(name) if outside else onnx.numpy_helper.to_array(known[name])

        for weight in self.weights:
            if weight.trained in tensors or weight.quantiser.scale.name in changed:
                array = tensors.pop(weight.trained, self._start[weight.trained])
                store(known[weight.file], self._integers(weight, array, numbers, known))
        for bias in self.biases:
            if bias.factors is not None:
                store(known[bias.scale], product(numbers, bias.factors, known[bias.scale]))
            array = tensors.pop(bias.trained, self._start[bias.trained]).astype(np.float32)
            whole = np.round((array / numbers(bias.scale)).astype(np.float64))
            info = np.iinfo(np.int32)
            store(known[bias.file], np.clip(whole, info.min, info.max).astype(np.int32))
            draft.held[bias.trained] = (numbers(bias.file) * numbers(bias.scale)).astype(np.float32)
        draft.tolerance = max(draft.tolerance, TOLERANCE)

    def _integers(self, weight: _Integers, array: np.ndarray, numbers, known) -> np.ndarray:
        """q = clip(round(w/s) + z), with the quotient in float32 as FakeQuant has it."""
        how, dtype = weight.quantiser, ir.DataType(known[weight.file].data_type)
        low, high = RANGES[dtype]
        scale = along(numbers(how.scale.name), array, how.axis, how.block)
        zero: np.ndarray | int = 0
        if how.zero is not None:
            zero = along(numbers(how.zero.name).astype(np.float64), array, how.axis, how.block)
        scale = np.where(
            scale == 0, np.float32(1), scale
        )  # whatever the integers are, they stand for 0
        steps = np.round((array.astype(np.float32) / scale).astype(np.float64))
        return np.clip(steps + zero, low, high).astype(dtype.numpy())


def _scale_and_zero(node: ir.Node) -> tuple[ir.Value, ir.Value | None]:
    return node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
