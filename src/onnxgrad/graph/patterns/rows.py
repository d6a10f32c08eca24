"""Rows that nobody reads: a classifier that looks at one token needs no other from its last layers.

    y = Gather<axis = 1>(Layer(x), 0)   →   y = Squeeze(Layer(Slice(x, 0, 1)))

A selection of a constant range (Gather of one index, Slice) moves up through operators that work on every row
alone, as long as nothing else reads the other rows. Through attention it moves to the queries: keys and values stay
whole. What is left out are products, forward and backward, whose results would be thrown away.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxgrad.graph.patterns.matching import Sight

_DOMAIN = "com.microsoft"
_END = (1 << 63) - 1
_POINTWISE = {
    ("", "Add"), ("", "Sub"), ("", "Mul"), ("", "Div"), ("", "Sum"), ("", "Identity"), ("", "Relu"), ("", "Gelu"),
    ("", "Tanh"), ("", "Sigmoid"), ("", "Erf"), ("", "Neg"), ("", "LeakyRelu"), (_DOMAIN, "GeluTraining"),
}  # fmt: skip
_NORMS = {"LayerNormalization", "SimplifiedLayerNormalization"}
# A selection is moved for the sake of these: the rest of a row costs little.
_PACKED = {"MatMulBnb4", "MatMulNBits"}  # with a matrix in few bits
_COSTLY = {"LinearTraining", "MatMul", "AttentionTraining", *_PACKED}


@dataclass
class Selection:
    """Elements [start, end) of one axis, and the nodes that they can be taken before: node -> axis of its output."""

    selector: ir.Node
    start: int
    end: int
    nodes: dict[ir.Node, int] = field(default_factory=dict)


def select_rows(sight: Sight) -> int:
    """Move selections up in the main graph; return how many were moved."""
    nodes, moved = list(sight.op.graph), 0
    place = {node: i for i, node in enumerate(nodes)}
    for node in nodes:
        found = _selection(sight, node)
        if found is None:
            continue
        selection, axis = found
        _collect(sight, selection, axis, place)
        if any(n.op_type in _COSTLY for n in selection.nodes):
            _Writer(sight, selection).write(axis)
            moved += 1
    return moved


def _selection(sight: Sight, node: ir.Node) -> tuple[Selection, int] | None:
    """What a node selects of its input, by constants, and along which axis."""
    if node.domain or node.op_type not in ("Gather", "Slice"):
        return None
    shape = sight.dims(node.inputs[0])
    if shape is None or not sight.read_once(node.inputs[0]):
        return None
    if node.op_type == "Gather":
        index, axis = sight.ints(node.inputs[1]), sight.attribute(node, "axis", 0)
        if index is None or len(index) != 1:
            return None
        start, end = index[0], index[0] + 1 or _END
    else:
        numbers = [sight.ints(v) for v in node.inputs[1:]]
        if len(numbers) < 3 or any(n is None or len(n) != 1 for n in numbers):
            return None
        (start,), (end,), (axis,), *steps = numbers
        if steps and steps[0] != [1]:
            return None
    return Selection(node, start, end), axis % len(shape)


def _collect(sight: Sight, selection: Selection, axis: int, place: dict[ir.Node, int]) -> None:
    """From the selector up: a node joins when all readers of what it makes need these rows only."""
    first = selection.selector.inputs[0]
    asked: dict[ir.Value, list[int]] = {first: [axis]}
    # by the place of the node; outputs of one node in the order in which they were met
    waiting = [(-place[first.producer()], 0, first)] if first.producer() in place else []
    while waiting:
        value = heapq.heappop(waiting)[-1]  # the last of the graph: all its readers have been seen
        node, axes = value.producer(), asked[value]
        needed = value.is_graph_output() or value in sight.variables or value is not node.outputs[0]
        needed = needed or len(axes) != len(value.uses()) or len(set(axes)) > 1
        parts = None if needed else _parts(sight, node, axes[0])
        if parts is None or any(o.uses() or o.is_graph_output() for o in node.outputs[1:]):
            continue
        selection.nodes[node] = axes[0]
        for i, part in parts.items():
            source = node.inputs[i]
            if source not in asked and source.producer() in place:
                heapq.heappush(waiting, (-place[source.producer()], len(asked), source))
            asked.setdefault(source, []).append(part)


def _parts(sight: Sight, node: ir.Node, axis: int) -> dict[int, int] | None:
    """Inputs of which a part is enough for a part of the output, with the axis of each; None where all is needed."""
    shape = sight.dims(node.outputs[0])
    if shape is None or any(v is not None and sight.dims(v) is None for v in node.inputs):
        return None
    last = len(shape) - 1
    if (node.domain, node.op_type) in _POINTWISE:
        return _broadcast_parts(sight, node, shape, axis)
    if node.op_type in _NORMS:
        first = sight.attribute(node, "axis", -1) % len(shape)
        return {0: axis} if axis < first else None
    if node.domain == _DOMAIN and node.op_type in ("LinearTraining", *_PACKED):
        return {0: axis} if axis < last else None
    if node.domain == "" and node.op_type == "MatMul":
        plain = len(sight.dims(node.inputs[1])) == 2 and len(sight.dims(node.inputs[0])) == len(
            shape
        )
        return {0: axis} if plain and axis < last else None
    if node.domain == "" and node.op_type == "Reshape":
        before = sight.dims(node.inputs[0])
        same = len(before) > axis and before[: axis + 1] == shape[: axis + 1]
        return {0: axis} if same and all(isinstance(d, int) for d in shape[axis + 1 :]) else None
    if node.domain == _DOMAIN and node.op_type == "AttentionTraining":
        return _attention_parts(sight, node, axis)
    return None


def _broadcast_parts(sight: Sight, node: ir.Node, shape, axis: int) -> dict[int, int] | None:
    parts = {}
    for i, value in enumerate(node.inputs):
        own = sight.dims(value)
        at = axis - (len(shape) - len(own))
        if at < 0 or own[at] == 1:
            continue
        if own[at] != shape[axis]:
            return None
        parts[i] = at
    return parts or None


def _attention_parts(sight: Sight, node: ir.Node, axis: int) -> dict[int, int] | None:
    """The queries, and rows of a mask that differs by row. Row i of a causal mask reads keys up to i: not moved.

    Dropout is drawn by the place of a weight among all: other rows would draw otherwise.
    """
    inputs = list(node.inputs) + [None] * (5 - len(node.inputs))
    packed = inputs[1] is None
    tokens = packed or sight.attribute(node, "layout", "heads") == "tokens"
    if sight.attribute(node, "causal", 0) or inputs[4] is not None or axis != (1 if tokens else 2):
        return None
    parts = {0: axis} if not packed else {}
    mask = None if inputs[3] is None else sight.dims(inputs[3])
    if mask is not None and len(mask) > 1 and mask[-2] != 1:
        parts[3] = len(mask) - 2
    return parts


class _Writer:
    """Writes the nodes of a selection anew, on the rows that are read."""

    def __init__(self, sight: Sight, selection: Selection):
        self.sight, self.op, self.selection = sight, sight.op, selection
        self.made: dict[ir.Value, ir.Value] = {}

    def write(self, axis: int) -> None:
        selector = self.selection.selector
        for node in reversed(self.selection.nodes):  # they were found from the last to the first
            self.made[node.outputs[0]] = self._written(node, self.selection.nodes[node])
        part = self.made[selector.inputs[0]]
        if selector.op_type == "Gather":
            part = (
                self.op.Gather(part, self.op.constant(0), axis=axis) if self._is_scalar() else part
            )
        self.sight.replace(selector.outputs[0], part)

    def _is_scalar(self) -> bool:
        return self.sight.dims(self.selection.selector.inputs[1]) == ()

    def _part(self, value: ir.Value, axis: int) -> ir.Value:
        """The rows of a value: made of such rows, or cut out."""
        if value not in self.made:
            self.made[value] = self.op.Slice(
                value, [self.selection.start], [self.selection.end], [axis]
            )
        return self.made[value]

    def _written(self, node: ir.Node, axis: int) -> ir.Value:
        if node.op_type == "AttentionTraining" and (len(node.inputs) < 2 or node.inputs[1] is None):
            return self._unpacked(node)
        parts = _parts(self.sight, node, axis)
        inputs = [self._part(v, parts[i]) if i in parts else v for i, v in enumerate(node.inputs)]
        if node.op_type == "Reshape":
            inputs[1] = self._shape(node, axis)
        attributes = {k: a.value for k, a in node.attributes.items() if k != "allowzero"}
        made = self.op.emit(node.op_type, inputs, attributes, len(node.outputs), node.domain)
        part = made if len(node.outputs) == 1 else made[0]
        return (
            self._shaped(part, node, inputs[0], axis)
            if node.op_type == "AttentionTraining"
            else part
        )

    def _shaped(self, part: ir.Value, node: ir.Node, queries: ir.Value, axis: int) -> ir.Value:
        """The contract of attention does not tell the shape of its result."""
        shape, rows = list(self.sight.dims(node.outputs[0])), self.sight.dims(queries)
        shape[axis] = None if rows is None else rows[axis]
        part.shape = ir.Shape(shape)
        return part

    def _shape(self, node: ir.Node, axis: int) -> ir.Value:
        """The shape of a reshaped part: what comes, up to the axis, then what the whole has behind it."""
        behind = [int(d) for d in self.sight.dims(node.outputs[0])[axis + 1 :]]
        return self.op.constant([0] * (axis + 1) + behind)

    def _unpacked(self, node: ir.Node) -> ir.Value:
        """Packed [N, S, 3, H, D]: rows of the queries, all keys and values."""
        op, packed = self.op, node.inputs[0]
        thirds = [op.Slice(packed, [i], [i + 1], [2]) for i in range(3)]
        start, end = [self.selection.start], [self.selection.end]
        thirds[0] = op.Slice(op.Slice(packed, start, end, [1]), [0], [1], [2])
        q, k, v = (op.Squeeze(third, [2]) for third in thirds)
        parts = _attention_parts(self.sight, node, 1)
        rest = [
            self._part(x, parts[i]) if i in parts else x for i, x in enumerate(node.inputs) if i > 2
        ]
        attributes = {n: a.value for n, a in node.attributes.items()}
        y, _ = op.AttentionTraining(q, k, v, *rest, **{**attributes, "layout": "tokens"}, outputs=2)
        return self._shaped(y, node, q, 1)
