"""Lists of tensors whose length is known are written as tensors.

torch.onnx writes `a, b = x.split(4)` as SplitToSequence and SequenceAt, and `cat(list)` as
SequenceInsert and ConcatFromSequence. Where the length of the list does not depend on the run the
same is said by Split and Concat, which have gradients and run faster.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxgrad.graph import infer
from onnxgrad.graph.constants import Constants

REWRITTEN = (
    "SplitToSequence", "SequenceAt", "ConcatFromSequence", "SequenceInsert", "SequenceErase",
    "SequenceConstruct",
)  # fmt: skip
_MAKERS = (
    "SplitToSequence", "SequenceInsert", "SequenceErase", "SequenceConstruct", "SequenceEmpty", "SequenceMap",
)  # fmt: skip
LIMIT = 4096  # elements of a list that is written out


def resolve(model: ir.Model) -> bool:
    """Write the lists of a model as tensors, where they can be; say whether any was."""
    changed = False
    for i, graph in enumerate(model.graphs()):
        if any(node.op_type in REWRITTEN and not node.domain for node in graph):
            changed |= _Lists(model, graph, f"sequence_{i}").resolve()
    return changed


def declare(model: ir.Model) -> None:
    """Give lists the type of a list: shape inference of onnx-ir leaves that of their elements."""
    for graph in model.graphs():
        lists: set[ir.Value] = set()
        for node in graph:
            same = node.op_type == "Identity" and node.inputs[0] in lists
            if not node.domain and (node.op_type in _MAKERS or same):
                lists.update(node.outputs)
        for value in lists:
            if isinstance(value.type, ir.TensorType):
                value.type = ir.SequenceType(value.type)


class _Lists:
    """The lists of one graph."""

    def __init__(self, model: ir.Model, graph: ir.Graph, name: str):
        self.main, self.opset = model.graph, model.opset_imports.get("", 1)
        self.graph, self.name, self.constants = graph, name, Constants(())
        self.parts: dict[ir.Value, list[ir.Value] | None] = {}
        self.count = 0

    def resolve(self) -> bool:
        changed = False
        for node in list(self.graph):
            if node.domain or node.op_type not in ("SequenceAt", "ConcatFromSequence"):
                continue
            new = self._read(node) if node.op_type == "SequenceAt" else self._joined(node)
            if new is not None:
                self._replace(node, new)
                changed = True
        made = (*REWRITTEN, "SequenceEmpty")
        nodes = [n for n in self.graph if n.op_type in made or self.parts.keys() & set(n.outputs)]
        for node in reversed(nodes):
            if not any(v.uses() or v.is_graph_output() for v in node.outputs):
                self.graph.remove(node, safe=True)
        return changed

    def _replace(self, node: ir.Node, new: ir.Value) -> None:
        old = node.outputs[0]
        if old.is_graph_output():
            new = self._node(node, "Identity", [new])
            old.name, new.name = None, old.name
            new.type, new.shape = old.type, old.shape
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        self.graph.remove(node, safe=True)

    def _read(self, node: ir.Node) -> ir.Value | None:
        """SequenceAt: the part itself, or a slice of what was split."""
        source, position = node.inputs
        parts, known = self._parts(source), self._number(position)
        if parts is not None and known is not None and -len(parts) <= known < len(parts):
            return parts[known]
        split = source.producer()
        if split is None or split.op_type != "SplitToSequence":
            return None
        return self._slice(node, split, position)

    def _slice(self, node: ir.Node, split: ir.Node, position: ir.Value) -> ir.Value | None:
        """Part i of equal parts of size s along an axis: from i·s to (i + 1)·s.

        For a negative position parts are counted from the end, which only equal ones can be: 1.
        """
        axis = _attribute(split, "axis", 0)
        given = split.inputs[1] if len(split.inputs) > 1 else None
        known = self._number(position)
        if given is None:
            if not _attribute(split, "keepdims", 1):
                index = self._node(node, "Reshape", [position, self._ints([])])
                return self._node(node, "Gather", [split.inputs[0], index], axis=axis)
            size = 1
        else:
            size = self._number(given) if infer.dims(given) == () else None
            if size is None:
                return None
        if known is None or (known < 0 and size != 1):
            return None
        end = (known + 1) * size if known != -1 else 2**62
        bounds = [self._ints([n]) for n in (known * size, end, axis)]
        return self._node(node, "Slice", [split.inputs[0], *bounds])

    def _joined(self, node: ir.Node) -> ir.Value | None:
        """ConcatFromSequence: Concat, after giving each part a new axis where it says so."""
        parts = self._parts(node.inputs[0])
        if not parts:
            return None
        axis = node.attributes["axis"].value
        if _attribute(node, "new_axis", 0):
            parts = [self._node(node, "Unsqueeze", [p, self._ints([axis])]) for p in parts]
        return self._node(node, "Concat", parts, axis=axis)

    def _parts(self, value: ir.Value) -> list[ir.Value] | None:
        """The tensors of a list, or None where only the run knows how many there are."""
        chain = []
        while value not in self.parts:  # a loop, not recursion: a list may grow one by one
            chain.append(value)
            node = value.producer()
            if node is None or node.op_type not in ("SequenceInsert", "SequenceErase", "Identity"):
                break
            value = node.inputs[0]
        for value in reversed(chain):
            node = value.producer()
            make = None if node is None or node.domain else getattr(self, f"_{node.op_type}", None)
            self.parts[value] = None if make is None else make(node)
        return self.parts[chain[0] if chain else value]

    # ---- one method per operator: the parts of the list it makes -----------------------------

    def _Identity(self, node):
        return self.parts[node.inputs[0]]

    def _SequenceEmpty(self, node):
        return []

    def _SequenceConstruct(self, node):
        return list(node.inputs)

    def _SequenceInsert(self, node):
        parts = self.parts[node.inputs[0]]
        given = node.inputs[2] if len(node.inputs) > 2 else None
        if parts is None or len(parts) >= LIMIT:
            return None
        position = len(parts) if given is None else self._number(given)
        if position is None:
            return None
        position += len(parts) if position < 0 else 0
        return [*parts[:position], node.inputs[1], *parts[position:]]

    def _SequenceErase(self, node):
        parts = self.parts[node.inputs[0]]
        given = node.inputs[1] if len(node.inputs) > 1 else None
        position = -1 if given is None else self._number(given)
        if not parts or position is None:
            return None
        position %= len(parts)
        return [*parts[:position], *parts[position + 1 :]]

    def _SplitToSequence(self, node):
        axis, keep = _attribute(node, "axis", 0), _attribute(node, "keepdims", 1)
        given = node.inputs[1] if len(node.inputs) > 1 else None
        sizes, count = self._sizes(node.inputs[0], given, axis)
        if count is None or not 0 < count <= LIMIT:
            return None
        parts = self._node(node, "Split", [node.inputs[0], sizes], outputs=count, axis=axis)
        parts = parts if isinstance(parts, list) else [parts]
        if given is None and not keep:
            parts = [self._node(node, "Squeeze", [p, self._ints([axis])]) for p in parts]
        return parts

    def _sizes(self, data: ir.Value, given: ir.Value | None, axis: int):
        """The sizes of the parts as a value, and how many there are; None where unknown."""
        if given is not None and infer.dims(given) != ():
            shape = infer.dims(given)
            known = shape is not None and isinstance(shape[0], int)
            return (given, shape[0]) if known else (None, None)
        size = 1 if given is None else self._number(given)
        shape = infer.dims(data)
        total = None if shape is None else shape[axis]
        if size is None or size < 1 or not isinstance(total, int):
            return None, None
        sizes = [size] * (total // size) + ([total % size] if total % size else [])
        return self._ints(sizes), len(sizes)

    # ---- writing -----------------------------------------------------------------------------

    def _number(self, value: ir.Value) -> int | None:
        array = self.constants.array(value)
        return None if array is None or array.size != 1 else int(array.reshape(()))

    def _ints(self, numbers: list[int]) -> ir.Value:
        self.count += 1
        name = f"{self.name}/constant_{self.count}"
        tensor = ir.tensor(np.array(numbers, np.int64), name=name)
        value = ir.Value(name=name, const_value=tensor)
        value.dtype, value.shape = tensor.dtype, ir.Shape(tensor.shape)
        self.main.register_initializer(value)
        return value

    def _node(self, before: ir.Node, op_type: str, inputs, outputs: int = 1, **attributes) -> Any:
        given = [ir.convenience.convert_attribute(k, v) for k, v in attributes.items()]
        node = ir.Node("", op_type, inputs, given, num_outputs=outputs)
        for i, value in enumerate(node.outputs):
            value.name = f"{before.outputs[0].name}/{op_type}_{self.count}_{i}"
        infer.tell(node, self.opset)
        self.count += 1
        self.graph.insert_before(before, node)
        return list(node.outputs) if outputs > 1 else node.outputs[0]


def _attribute(node: ir.Node, name: str, default: int) -> int:
    return node.attributes[name].value if name in node.attributes else default
