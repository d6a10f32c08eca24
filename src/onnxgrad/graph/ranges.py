"""Between which numbers a value lies, whatever the weights and the data: what is a probability, what cannot be.

Interval arithmetic from the output backwards. Only what operators promise counts, never what weights hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container

import numpy as np
import onnx_ir as ir

from onnxgrad.graph.constants import Constants

Range = tuple[float, float]
ANY: Range = (-math.inf, math.inf)
UNIT: Range = (0.0, 1.0)
DEPTH = 64  # nodes in a row: a longer chain is not looked through

# Operators whose results are numbers of their first input, or lie between them.
_LIKE_FIRST = frozenset(
    [
        "Identity",
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Transpose",
        "Slice",
        "Gather",
        "GatherND",
        "GatherElements",
        "Expand",
        "Tile",
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "MaxPool",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "Split",
        "TopK",
        "DepthToSpace",
        "SpaceToDepth",
        "Dropout",
        "Cast",
        "Compress",
        "ReverseSequence",
    ]
)
_AROUND_SUMS = frozenset(
    {"Add", "Clip", "Max", "Expand", "Identity", "Reshape", "Unsqueeze", "Squeeze"}
)
_LIKE_ALL = frozenset({"Concat", "Max", "Min", "Mean"})
_FIXED: dict[str, Range] = {
    **dict.fromkeys(("Sigmoid", "Softmax", "HardSigmoid", "Hardmax"), UNIT),
    **dict.fromkeys(("Tanh", "Softsign", "Erf", "Sin", "Cos"), (-1.0, 1.0)),
    **dict.fromkeys(("Softplus", "ReduceSumSquare", "ReduceL1", "ReduceL2"), (0.0, math.inf)),
    "LogSoftmax": (-math.inf, 0.0),
}


def _product(a: Range, b: Range) -> Range:
    ends = [0.0 if 0 in (x, y) else x * y for x in a for y in b]
    return min(ends), max(ends)


def _inverse(a: Range) -> Range:
    if a[0] < 0 < a[1]:
        return ANY
    if a[0] >= 0:
        return (0.0 if math.isinf(a[1]) else 1 / a[1] if a[1] else math.inf,
                1 / a[0] if a[0] else math.inf)  # fmt: skip
    low, high = _inverse((-a[1], -a[0]))
    return -high, -low


def _rising(function: Callable[[float], float]) -> Callable[[Range], Range]:
    """From a rising function of one number to one of ranges."""

    def apply(a: Range) -> Range:
        try:
            return function(a[0]), function(a[1])
        except (OverflowError, ValueError):
            return ANY

    return apply


def _exp(x: float) -> float:
    return math.inf if x > 700 else math.exp(x)


def _abs(a: Range) -> Range:
    low = 0.0 if a[0] <= 0 <= a[1] else min(map(abs, a))
    return low, max(map(abs, a))


_OF_ONE: dict[str, Callable[[Range], Range]] = {
    "Relu": lambda a: (max(a[0], 0.0), max(a[1], 0.0)),
    "Neg": lambda a: (-a[1], -a[0]),
    "Abs": _abs,
    "Exp": _rising(_exp),
    "Sqrt": _rising(lambda x: math.sqrt(max(x, 0.0))),
    "Reciprocal": _inverse,
}
_OF_TWO: dict[str, Callable[[Range, Range], Range]] = {
    "Add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "Sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "Mul": _product,
    "Div": lambda a, b: _product(a, _inverse(b)),
    "Pow": lambda a, b: UNIT if a[0] >= 0 and a[1] <= 1 and b[0] >= 0 else ANY,
}


# What only rounds: quantised files end in it.
ROUNDING = frozenset({"FakeQuant", "QuantizeLinear", "DequantizeLinear"})


def activation_of(node: ir.Node) -> str:
    """Return the operator of a node, or the activation that onnxruntime's optimiser fused into it.

    Of domains of others nothing is known but what they are called.
    """
    fused = node.attributes.get("activation") if node.op_type.startswith("Fused") else None
    if fused is not None and node.domain == "com.microsoft":
        return str(fused.value)
    known = node.domain in ("", "ai.onnx") or node.op_type in ROUNDING
    return node.op_type if known else f"{node.domain}.{node.op_type}"


class Ranges:
    """Finds ranges; `variables` are tensors that training may change."""

    def __init__(self, variables: Container[ir.Value] = ()):
        self._constants = Constants(variables)
        self._known: dict[ir.Value, Range] = {}

    def of(self, value: ir.Value, depth: int = DEPTH) -> Range:
        """Return the least and the largest number that a value can hold; infinite where nothing tells."""
        if value not in self._known:
            self._known[value] = ANY  # while it is being looked for: a loop tells nothing
            found = self._find(value, depth)
            self._known[value] = ANY if any(map(math.isnan, found)) else found
        return self._known[value]

    def _find(self, value: ir.Value, depth: int) -> Range:
        node = value.producer()
        constant = self._constants.array(value)
        if constant is not None:  # of one number: a vector may be a weight
            plain = constant.size == 1 and constant.dtype.kind in "fiu"
            return (float(constant.min()), float(constant.max())) if plain else ANY
        if node is None or depth <= 0:
            return ANY
        kind = activation_of(node)
        if kind in _FIXED:
            return _FIXED[kind]
        if kind in ROUNDING and node.inputs[0] is not None:  # up to half a step
            return self.of(node.inputs[0], depth - 1)
        if node.domain not in ("", "ai.onnx"):
            return ANY
        if kind == "Div" and self._is_share(node):
            return UNIT
        if kind == "If":
            place = list(node.outputs).index(value)
            bodies = [a.value for a in node.attributes.values() if isinstance(a.value, ir.Graph)]
            return _around([self.of(b.outputs[place], depth - 1) for b in bodies])
        if kind in ("Loop", "Scan"):
            return _around(
                [ANY if v is None else self.of(v, depth - 1) for v in _made(node, value)]
            )
        return self._of_inputs(node, [
            ANY if v is None else self.of(v, depth - 1) for v in node.inputs
        ])  # fmt: skip

    def _of_inputs(self, node: ir.Node, inputs: list[Range]) -> Range:
        kind = node.op_type
        if kind in _LIKE_FIRST:
            return inputs[0]
        if kind in _LIKE_ALL:
            return _around(inputs) if kind in ("Concat", "Mean") else _extreme(kind, inputs)
        if kind == "Where":
            return _around(inputs[1:])
        if kind == "Clip":
            return _clipped(node, inputs)
        if kind == "Sum":
            return sum(a[0] for a in inputs), sum(a[1] for a in inputs)
        if kind in _OF_ONE:
            return _OF_ONE[kind](inputs[0])
        if kind in _OF_TWO:
            square = kind == "Mul" and node.inputs[0] is node.inputs[1]
            return _product(*[_abs(inputs[0])] * 2) if square else _OF_TWO[kind](*inputs[:2])
        if kind == "Resize" and _attribute(node, "mode", "nearest") in ("nearest", "linear"):
            return inputs[0]
        return ANY

    def _is_share(self, node: ir.Node) -> bool:
        """e / Σe with e ≥ 0, also with a small number added to the sum, or the sum kept from 0, or moved."""
        part, whole = node.inputs[:2]
        if part is None or self.of(part)[0] < 0:
            return False
        for _ in range(4):
            maker = whole.producer() if whole is not None else None
            if maker is None:
                return False
            if maker.op_type == "ReduceSum":
                return maker.inputs[0] is part
            if maker.op_type not in _AROUND_SUMS:
                return False
            others = [v for v in maker.inputs[1:] if v is not None]
            if maker.op_type == "Add" and any(self.of(v)[0] < 0 for v in others):
                return False
            whole = maker.inputs[0]
        return False


def _made(node: ir.Node, value: ir.Value) -> list[ir.Value | None]:
    """What an output of a Loop or Scan is made of: the results of its steps and, where carried, its beginning."""
    loop, place = node.op_type == "Loop", list(node.outputs).index(value)
    body = node.attributes["body"].value
    ends = list(body.outputs)[1 if loop else 0 :]
    scanned = 0 if loop else node.attributes["num_scan_inputs"].value
    begins = list(node.inputs)[2:] if loop else list(node.inputs)[: len(node.inputs) - scanned]
    return [ends[place], *begins[place : place + 1]]


def _around(ranges: list[Range]) -> Range:
    return (min(a[0] for a in ranges), max(a[1] for a in ranges)) if ranges else ANY


def _extreme(kind: str, ranges: list[Range]) -> Range:
    pick = max if kind == "Max" else min
    return pick(a[0] for a in ranges), pick(a[1] for a in ranges)


def _clipped(node: ir.Node, inputs: list[Range]) -> Range:
    low = inputs[1][0] if len(inputs) > 1 and node.inputs[1] is not None else -math.inf
    high = inputs[2][1] if len(inputs) > 2 and node.inputs[2] is not None else math.inf
    return max(inputs[0][0], low), max(min(inputs[0][1], high), low)


def _attribute(node: ir.Node, name: str, default: str) -> str:
    found = node.attributes.get(name)
    return default if found is None else str(np.asarray(found.value))


def holds_probabilities(value: ir.Value, variables: Container[ir.Value] = ()) -> bool:
    """Say whether every number of a value lies from 0 to 1, whatever weights and data are.

    What cannot be negative is not a logit: such a model gives probabilities.
    """
    low, high = Ranges(variables).of(value)
    return low >= 0 and high <= 1 and high > low
