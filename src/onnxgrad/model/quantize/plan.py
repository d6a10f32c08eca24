"""Which node is quantised how: the settings, applied to the nodes of a model."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import onnx

from onnxgrad.errors import ConfigError
from onnxgrad.model.quantize.settings import FLOAT, Precision, Quantize
from onnxgrad.model.quantize.weights import OwnWeight

# operator -> the place of its weight; of a product, of either operand
WEIGHTS = {"Conv": (1,), "ConvTranspose": (1,), "Gemm": (1,), "MatMul": (1, 0)}
BLOCKED = ("Gemm", "MatMul")


class Names:
    """The nodes of a prepared model, by their own names and by those of the file that were folded into them."""

    def __init__(self, original: onnx.ModelProto, prepared: onnx.ModelProto):
        maker = {o: n.name for n in original.graph.node for o in n.output if o}
        self.original = [n.name for n in original.graph.node]
        self.of: dict[str, set[str]] = {}
        for node in prepared.graph.node:
            known = {maker[o] for o in node.output if o in maker}
            # "fc1/MatMulAddFusion" was fc1; a batch normalisation's output comes from its convolution
            self.of[node.name] = {node.name, node.name.rpartition("/")[0] or node.name, *known}

    def matched(self, setting: str, patterns: Iterable[str]) -> set[str]:
        """Return the prepared nodes that patterns mean; raises ConfigError for one that means nothing."""
        found: set[str] = set()
        for pattern in patterns:
            nodes = {n for n, known in self.of.items() if fnmatch.filter(known, pattern)}
            if not nodes and not fnmatch.filter(self.original, pattern):
                listed = ", ".join(map(repr, self.original[:4]))
                raise ConfigError(
                    f"quantize: {setting} names {pattern!r}, which is not a node; nodes are {listed} …"
                )
            found |= nodes
        return found


@dataclass
class Plan:
    """What onnxruntime's writer is told, and which weights are written here.

    calibrated: whether any activation is quantised.
    activations: the type of those that `types` does not name.
    only, excluded: nodes by name, as the writer takes them.
    types: tensors that have another type than the rest, and the axis of their scales.
    own: weights in blocks, and weights of nodes whose activations stay float.
    """

    calibrated: bool = False
    activations: str = "int8"
    only: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    types: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    own: dict[str, OwnWeight] = field(default_factory=dict)

    @classmethod
    def of(cls, model: onnx.ModelProto, settings: Quantize, names: Names) -> Plan:
        """Work out what happens to every node; raises ConfigError for a pattern that fits none."""
        excluded = names.matched("exclude", settings.exclude)
        only = names.matched("only", settings.only)
        chosen: dict[str, Precision] = {}
        for pattern, precision in settings.nodes:
            for name in names.matched("nodes", [pattern]):
                chosen.setdefault(name, precision)
        plan = cls(only=sorted(only))
        floats = {
            t.name: t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT
        }
        used: dict[str, Precision] = {}
        for node in model.graph.node:
            left = node.name in excluded or (only and node.name not in only)
            if left or (settings.op_types and node.op_type not in settings.op_types):
                precision = Precision(None, FLOAT)
            else:
                precision = chosen.get(node.name, settings.precision)
            used[node.name] = precision
            plan._add(node, precision, settings, floats)
        kinds = {p.activations for p in used.values() if p.weights} - {FLOAT}
        default = settings.activations
        plan.activations = default if default != FLOAT else min(kinds, default="int8")
        plan.calibrated = bool(kinds)
        return plan

    def _add(self, node, precision: Precision, settings: Quantize, floats) -> None:
        if precision.weights is None or precision.activations == FLOAT:
            self.excluded.append(node.name)
        if precision.weights is None:
            return
        for place in WEIGHTS.get(node.op_type, ()):
            name = node.input[place]
            if name in floats and len(floats[name].dims) > 1:
                self._weight(node, place, precision, settings, len(floats[name].dims))
                break
        if precision.activations not in (FLOAT, settings.activations):
            for name in _read(node):
                if name not in floats:
                    _claim(self.types, name, (precision.activations, None))

    def _weight(
        self, node, place: int, precision: Precision, settings: Quantize, rank: int
    ) -> None:
        name = node.input[place]
        block = precision.block if node.op_type in BLOCKED else 0
        if block and precision.activations != FLOAT and not precision.weights.endswith("int4"):
            raise ConfigError(
                f"quantize: {node.name!r} has {precision.weights} in blocks and {precision.activations} activations, "
                "for which onnxruntime has no product; take int4, or activations=float"
            )
        if block or precision.activations == FLOAT:
            axis: int | None = _along(node, place, rank)
            if not block:  # a scale for each output channel
                axis = _outputs(node, place, rank) if settings.per_channel else None
            _claim(self.own, name, OwnWeight(precision.weights, axis, block))
        elif precision.weights != settings.weights:
            axis = _outputs(node, place, rank) if settings.per_channel else None
            _claim(self.types, name, (precision.weights, axis))


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the activations that a node reads; of a convolution or product, its operands."""
    places = node.input[:2] if node.op_type in WEIGHTS else node.input[:1]
    yield from filter(None, places)


def _along(node: onnx.NodeProto, place: int, rank: int) -> int:
    """Return the axis that a product sums over: blocks lie along it."""
    transposed = any(a.name == "transB" and a.i for a in node.attribute)
    return rank - 1 if transposed or place == 0 else rank - 2


def _outputs(node: onnx.NodeProto, place: int, rank: int) -> int:
    """Return the axis of a weight's output channels."""
    if node.op_type in BLOCKED:
        return (rank - 1) + (rank - 2) - _along(node, place, rank)
    return 1 if node.op_type == "ConvTranspose" else 0


def _claim(chosen: dict, name: str, what) -> None:
    if chosen.setdefault(name, what) != what:
        raise ConfigError(
            f"quantize: two nodes share the tensor {name!r} and ask for other types of it, {chosen[name]} and {what}"
        )
