"""Copies that were one parameter: an embedding and a head whose transpose the exporter wrote down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxgrad.model.change import Change, Draft
from onnxgrad.model.patterns import is_identity, is_uniform
from onnxgrad.model.roles import TYPES
from onnxgrad.model.untie import names_match, patterns
from onnxgrad.notes import Note

LEAST = 16  # elements: as many are not equal by chance


@dataclass(frozen=True)
class Copy:
    """Tensor `copy` holds what `kept` holds, transposed or not."""

    kept: str
    copy: str
    transposed: bool


class Retie(Change):
    """Trains an embedding and a head that hold the same numbers as the one parameter they were.

    PyTorch's exporters write the transpose of a matrix as a tensor of its own, also of one that the
    embedding uses as it is. `untie` names those to separate.
    """

    def __init__(self, untie: str | Iterable[str] = ()):
        self.untie = patterns(untie)
        self.copies: list[Copy] = []
        self.known: list[list[str]] = []

    def apply(self, model: ir.Model) -> None:
        initializers = model.graph.initializers
        for found in list(copies_of(model)):
            self.known.append([found.copy, found.kept])
            if names_match((found.kept, found.copy), self.untie):
                continue
            kept, copy = initializers[found.kept], initializers[found.copy]
            value = _transpose(model, kept, copy) if found.transposed else kept
            ir.convenience.replace_all_uses_with(copy, value)
            del initializers[found.copy]
            self.copies.append(found)

    def describe(self) -> Iterable[Note]:
        for c in self.copies:
            how = "is the transpose of" if c.transposed else "equals"
            yield Note(
                "tied",
                c.copy,
                f"tensor {c.copy!r} {how} {c.kept!r}: they were one parameter and train as one",
                f"--untie {c.copy} separates them",
            )

    def write_back(self, draft: Draft) -> None:
        for c in self.copies:
            if c.kept in draft.tensors:
                array = draft.tensors[c.kept]
                draft.tensors[c.copy] = np.ascontiguousarray(array.T) if c.transposed else array


def copies_of(model: ir.Model) -> Iterator[Copy]:
    """Yield the float initializers that repeat an earlier one; the first keeps its name."""
    kept: dict[tuple, list[ir.Value]] = {}
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None or value.dtype not in TYPES or tensor.size < LEAST or not value.uses():
            continue
        if value.is_graph_output() or value.is_graph_input():
            continue
        found = None
        alike = kept.setdefault(_mark(tensor), [])
        for first in alike:
            found = _same(first, value)
            if found:
                yield found
                break
        if not found:
            alike.append(value)  # not by its mark again: one with NaN equals nothing


def _mark(tensor: ir.TensorProtocol) -> tuple:
    """What a tensor and its transpose have in common, and others hardly: corners and sizes."""
    array = tensor.numpy()
    corners = (float(array.flat[0]), float(array.flat[array.size - 1]))
    return (tensor.dtype, tuple(sorted(array.shape)), corners)


def _same(first: ir.Value, value: ir.Value) -> Copy | None:
    a, b = first.const_value.numpy(), value.const_value.numpy()
    if is_uniform(a) or is_identity(a):
        return None  # equal by chance
    if a.shape == b.shape and _looked_up(first) != _looked_up(value) and np.array_equal(a, b):
        return Copy(first.name, value.name, False)
    if a.ndim == 2 and a.shape == b.shape[::-1] and np.array_equal(a.T, b):
        return Copy(first.name, value.name, True)
    return None


def _looked_up(value: ir.Value) -> bool:
    """An embedding: rows are taken from it. Layers of one kind may be copies of each other."""
    return any(node.op_type == "Gather" for node, _ in value.uses())


def _transpose(model: ir.Model, kept: ir.Value, copy: ir.Value) -> ir.Value:
    out = ir.Value(name=f"{copy.name}/tied", shape=copy.shape, type=copy.type)
    node = ir.Node(
        "", "Transpose", [kept], [ir.AttrInt64s("perm", [1, 0])], outputs=[out], name=out.name
    )
    first = next(iter(model.graph), None)
    model.graph.insert_before(first, node)
    return out
