"""A model with its branches: applied to a graph, described, written back as weights or as an adapter."""

from __future__ import annotations

import fnmatch
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from onnxgrad.errors import AdapterError
from onnxgrad.model import parameters, roles
from onnxgrad.model.lora import layers as layers_of
from onnxgrad.model.lora import matrices, targets
from onnxgrad.model.lora.branch import Branch, Parts, initializer
from onnxgrad.model.lora.layers import Layer
from onnxgrad.model.lora.settings import Lora
from onnxgrad.model.lora.shapes import rank_axis, shape_of
from onnxgrad.model.lora.start import read as read_start


def part_names(layer: Layer, variant: str) -> dict[str, str]:
    """Return the names of a branch's tensors, as peft has them: keys "a", "b", and "m" for DoRA."""
    if layer.kind == "embedding":
        names = {k: f"{layer.name}.lora_embedding_{k.upper()}" for k in "ab"}
    else:
        names = {k: f"{layer.name}.lora_{k.upper()}.weight" for k in "ab"}
    return {**names, "m": f"{layer.name}.lora_magnitude_vector"} if variant == "dora" else names


@dataclass
class Adapter:
    """The branches of a model. `tensors` holds what they begin with, by name, in the graph's layout.

    trained: names of all tensors to train, those that are trained in full included.
    """

    lora: Lora
    layers: list[Layer]
    tensors: dict[str, np.ndarray]
    saved: list[str] = field(default_factory=list)
    reason: str = ""
    total: int = 0
    full: dict[str, np.ndarray] = field(default_factory=dict)  # what some of `saved` begin with
    shared: set[str] = field(default_factory=set)  # weights that another layer reads, too

    @property
    def trained(self) -> list[str]:
        """The names of every tensor that is trained."""
        return [*self.tensors, *self.saved]

    def names(self, layer: Layer) -> dict[str, str]:
        """The names of the tensors of one branch."""
        return part_names(layer, self.lora.variant)

    # ---- describe

    def notes(self) -> list[str]:
        """Say what was adapted, and what was decided on the way."""
        lora, count = self.lora, len(self.layers)
        numbers = sum(a.size for a in self.tensors.values())
        notes = [
            f"{_called(lora.variant)} of rank {lora.r}, alpha {lora.alpha:g}, on {count} "
            f"{'layer' if count == 1 else 'layers'} ({self.reason}): {numbers:,} numbers, "
            f"{100 * numbers / max(self.total, 1):.2g} % of the model's {self.total:,}"
        ]
        if self.saved:
            notes.append(f"trained in full beside the adapter: {', '.join(self.saved)}")
        forms = sorted({x.weight.form for x in self.layers if not x.weight.is_float})
        if forms:
            notes.append(
                f"adapted weights are kept in {' and '.join(forms)}: they stay so, with the branch "
                "beside them, since rounding again would lose what was learned"
            )
        return notes

    def rows(self) -> list[dict[str, object]]:
        """One row per layer: what it is, and what its branch costs."""
        return [
            {
                "layer": x.name, "kind": x.kind, "in": x.fan_in, "out": x.fan_out,
                "kernel": list(x.kernel), "weight": x.weight.value.name, "form": x.weight.form,
                "places": len(x.places),
                "numbers": sum(self.tensors[n].size for n in self.names(x).values()),
            }
            for x in self.layers
        ]  # fmt: skip

    # ---- write back

    def gains(self, tensors: Mapping[str, np.ndarray], layer: Layer) -> np.ndarray | None:
        """Return DoRA's g = m/n of a layer with the given tensors."""
        names = self.names(layer)
        if "m" not in names:
            return None
        a, b, m = (tensors[names[k]] for k in "abm")
        new = matrices.matrix(layer) + matrices.delta(layer, a, b, self.lora.scale)
        return m.reshape(-1) / np.sqrt(np.square(new).sum(0))

    def merged(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the weights with their branches added, by the names of the model's own tensors."""
        found = {n: tensors[n] for n in self.saved}
        for layer in self.layers:
            if layer.weight.value.name in self.shared:
                raise AdapterError(
                    f"lora: {layer.name!r} shares the weight {layer.weight.value.name!r} with another layer, "
                    "which a merge would change as well; write an adapter instead"
                )
            a, b = (tensors[self.names(layer)[k]] for k in "ab")
            new = matrices.matrix(layer) + matrices.delta(layer, a, b, self.lora.scale)
            if self.lora.variant == "dora":
                m = tensors[self.names(layer)["m"]].reshape(-1)
                new = new * (m / np.sqrt(np.square(new).sum(0)))
            found[layer.weight.value.name] = matrices.as_kept(layer, new)
        return found

    def parameters(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return what an .onnx_adapter file holds: A, s·B, and g where there is one; weights trained in full."""
        found = {}
        for layer in self.layers:
            names, kind = self.names(layer), tensors[self.names(layer)["a"]].dtype
            found[names["a"]] = tensors[names["a"]]
            b = tensors[names["b"]].astype(np.float64) * self.lora.scale
            found[names["b"]] = b.astype(kind)
            if "m" in names:
                found[gain_name(layer)] = self.gains(tensors, layer).astype(kind)
        return {**found, **{n: tensors[n] for n in self.saved}}


def gain_name(layer: Layer) -> str:
    """The name of DoRA's g in a file that takes adapters."""
    return f"{layer.name}.lora_gain"


def _called(variant: str) -> str:
    return {"lora": "LoRA", "rslora": "rsLoRA", "dora": "DoRA"}[variant]


# ---- apply


def plan(model: ir.Model, lora: Lora) -> Adapter:
    """Return the branches that a setting means for a model, which stays as it is."""
    found = layers_of.find(model)
    start = None
    if lora.start is not None:
        start = read_start(lora, found)
        lora, chosen, reason = start.lora, start.layers, f"those of {lora.start}"
    else:
        chosen, reason = targets.choose(found, lora.targets)
    tensors: dict[str, np.ndarray] = {}
    for layer in chosen:
        tensors.update(_initial(layer, lora, start.parts[layer.name] if start else {}))
    saved = _saved(model, lora, found, chosen)
    uses = Counter(layer.weight.value.name for layer in found)
    shared = {name for name, count in uses.items() if count > 1}
    total = _numbers(model, found)
    adapter = Adapter(lora, chosen, tensors, saved, reason, total, shared=shared)
    if start is not None:
        _take_full(model, adapter, start.full)
    return adapter


def _take_full(model: ir.Model, adapter: Adapter, full: Mapping[str, np.ndarray]) -> None:
    """Let weights that an adapter trained in full be trained in full again, from where it left them."""
    for name, array in full.items():
        value = model.graph.initializers.get(name)
        if value is None or tuple(value.const_value.shape) != array.shape:
            raise AdapterError(
                f"the adapter {adapter.lora.start} is of another model: it holds the weight {name!r} of "
                f"shape {list(array.shape)}, which this one does not have"
            )
        if name not in adapter.saved:
            adapter.saved.append(name)
        adapter.full[name] = array


def apply(model: ir.Model, adapter: Adapter) -> None:
    """Write the branches into `model`, in the form that is trained: A, B and m are initializers.

    `adapter` was planned for this model.
    """
    branch = Branch(model, adapter.lora.scale, adapter.lora.dropout)
    for name, array in adapter.full.items():
        model.graph.initializers[name].const_value = ir.tensor(array, name=name)
    for layer in adapter.layers:
        names = adapter.names(layer)
        values = {k: initializer(model.graph, n, adapter.tensors[n]) for k, n in names.items()}
        norms = matrices.column_norms(layer) if "m" in values else None
        branch.write(layer, Parts(values["a"], values["b"], values.get("m")), norms)


def of_file(proto: onnx.ModelProto) -> ir.Model:
    """Return a file's graph as it is, with the types that can be told; external weights stay outside."""
    model = ir.from_proto(proto)
    ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)(model)
    return model


def serving(model: ir.Model, adapter: Adapter, tensors: Mapping[str, np.ndarray]) -> None:
    """Make `model` take adapters: their tensors are inputs with a default of rank 0, so that it runs without.

    `model` is another copy of the one that `adapter` was planned for.
    """
    known = {layer.name: layer for layer in layers_of.find(model)}
    branch = Branch(model)
    for layer in adapter.layers:
        own = known.get(layer.name)
        if own is None:
            raise AdapterError(f"the model as it was given has no layer {layer.name!r} of its own")
        names = adapter.names(layer)
        kind = tensors[names["a"]].dtype
        a, b = (_empty(own, k, kind) for k in "ab")
        parts = Parts(
            _taken(model, names["a"], a, rank_axis(own, "a")),
            _taken(model, names["b"], b, rank_axis(own, "b")),
        )
        if "m" in names:
            parts.gain = _taken(model, gain_name(layer), np.ones(own.fan_out, kind), None)
        branch.write(own, parts)
    for name in adapter.saved:
        value = model.graph.initializers.get(name)
        if value is None:
            raise AdapterError(
                f"{name!r} is written as a Constant node, which cannot be an input of the model; "
                "merge the adapter instead"
            )
        model.graph.inputs.append(value)


def _taken(model: ir.Model, name: str, default: np.ndarray, axis: int | None) -> ir.Value:
    value = initializer(model.graph, name, default)
    shape = list(default.shape)
    if axis is not None:
        shape[axis] = f"{name}/rank"
    value.shape = ir.Shape(shape)
    model.graph.inputs.append(value)
    return value


def _empty(layer: Layer, part: str, kind: np.dtype) -> np.ndarray:
    """A default that adds nothing. A convolution to 0 channels is refused by onnxruntime: one of zeros."""
    return np.zeros(shape_of(layer, part, 1 if layer.kind == "conv" else 0), kind)


def _initial(layer: Layer, lora: Lora, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A uniform in ±1/√(in·k) and B zero; of a table A zero and B normal, as peft has it; m = ‖W‖.

    `given` are the tensors of an adapter to begin from.
    """
    kind = np.float64 if layer.weight.form == "float64" else np.float32
    rng = np.random.default_rng([lora.seed, zlib.crc32(layer.name.encode())])
    names = part_names(layer, lora.variant)
    if given:
        return {names[k]: given[k].astype(kind) for k in names}
    a, b = (np.zeros(shape_of(layer, k, lora.r), kind) for k in "ab")
    if layer.kind == "embedding":
        b[...] = rng.standard_normal(b.shape)
    else:
        bound = 1 / np.sqrt(layer.size / layer.fan_out)
        a[...] = rng.uniform(-bound, bound, a.shape)
    found = {names["a"]: a, names["b"]: b}
    if "m" in names:
        found[names["m"]] = np.sqrt(matrices.column_norms(layer)).astype(kind)
    return found


def _saved(model: ir.Model, lora: Lora, found: list[Layer], chosen: list[Layer]) -> list[str]:
    """The tensors that `modules_to_save` means."""
    if not lora.modules_to_save:
        return []
    outputs = [v for v in model.graph.outputs if v.dtype in roles.TYPES]
    floats = [t for t in roles.judge(model, outputs) if t.trained]
    adapted = {layer.weight.value.name for layer in chosen}
    names: dict[str, None] = {}
    for pattern in lora.modules_to_save:
        if pattern == "head":
            matched = parameters.head(model, [t.name for t in floats])
        else:
            weights = {
                x.weight.value.name
                for x in found
                if x.kind != "packed" and targets.matches(x, pattern)
            }
            matched = [v.name for v in floats if v.name in weights or _inside(v.name, pattern)]
        if not matched:
            raise AdapterError(
                f"lora: modules_to_save names {pattern!r}, which matches none of the model's "
                f"{len(floats)} float tensors"
            )
        names.update(dict.fromkeys(matched))
    both = [n for n in names if n in adapted]
    if both:
        raise AdapterError(f"lora: {both[0]!r} would be trained both in full and by an adapter")
    return list(names)


def _inside(name: str, pattern: str) -> bool:
    """Say whether a tensor is meant: by its name, a glob, or a module that it is part of."""
    return fnmatch.fnmatchcase(name, pattern) or f".{pattern}." in f".{name}"


def _numbers(model: ir.Model, found: list[Layer]) -> int:
    """How many numbers the model has, whatever form they are kept in."""
    packed = {layer.weight.value.name: layer.size for layer in found}
    total = sum(packed.values())
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None or value.name in packed or tensor.dtype not in _FLOATS:
            continue
        total += tensor.size
    return total


_FLOATS = (
    ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16,
)  # fmt: skip
