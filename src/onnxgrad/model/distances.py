"""Biases of attention that were looked up by the distance of two places: the exporter wrote the result down."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxgrad.model.change import Change, Draft
from onnxgrad.model.patterns import describe, is_uniform
from onnxgrad.model.repeat import READERS, insert, is_made_up
from onnxgrad.model.roles import TYPES
from onnxgrad.notes import Note

LEAST = 4  # places: fewer have too few distances to tell


@dataclass(frozen=True)
class LookedUp:
    """Element [*k, i, j] of a tensor is element [rows[k], index[i, j]] of what is trained.

    `rows` is None where every k has a row of its own, and the table the axes of k.
    """

    name: str
    shape: tuple[int, ...]
    index: np.ndarray
    rows: np.ndarray | None


class Distances(Change):
    """Trains one number for every distance, where a tensor that an exporter computed repeats it along diagonals.

    The relative positions of a sequence, or of the places of a window (Swin): a table that the network looks up by
    indices which never change.
    """

    def __init__(self) -> None:
        self.found: list[LookedUp] = []

    def apply(self, model: ir.Model) -> None:
        for value in list(model.graph.initializers.values()):
            tensor = value.const_value
            if value.dtype not in TYPES or tensor is None or not is_made_up(value):
                continue
            kinds = {node.op_type for node, _ in value.uses()}
            if not kinds or not kinds <= READERS:
                continue
            index = by_distance(tensor.numpy())
            if index is not None and describe(tensor.numpy()) is None:
                table = _table(tensor.numpy(), index)
                rows = _repeated(table)
                self.found.append(LookedUp(value.name, tuple(tensor.shape), index, rows))
                _look_up(model, value, table, self.found[-1])

    def describe(self) -> Iterable[Note]:
        for f in self.found:
            yield Note(
                "repeated",
                f.name,
                f"tensor {f.name!r} of shape {list(f.shape)} was looked up by the distances of {f.shape[-1]} places: "
                f"it trains as the numbers of {f.index.max() + 1} distances",
            )

    def write_back(self, draft: Draft) -> None:
        for f in self.found:
            array = draft.tensors.get(f.name)
            if array is not None:
                array = array if f.rows is None else array[f.rows]
                draft.tensors[f.name] = np.take(array, f.index, axis=-1)


def by_distance(array: np.ndarray) -> np.ndarray | None:
    """Return which number of a table each element of square matrices is; None where distances do not tell.

    The places are those of a sequence, or of a window of several rows.

    >>> by_distance(np.array([[5.0, 3, 4, 1], [2, 5, 3, 4], [7, 2, 5, 3], [6, 7, 2, 5]]))[0]
    array([3, 2, 1, 0])
    """
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or is_uniform(array):
        return None
    count, own = array.shape[-1], np.diagonal(array, axis1=-2, axis2=-1)
    if (own != own[..., :1]).any():
        return None
    for rows in range(1, count // 2 + 1) if count >= LEAST else ():
        if count % rows:
            continue
        index = _distances(rows, count // rows)
        table = _table(array, index)
        if (np.take(table, index, axis=-1) == array).all():
            return _of_equal_ones(table, index)
    return None


def _of_equal_ones(table: np.ndarray, index: np.ndarray) -> np.ndarray | None:
    """Long distances may share a number (T5's buckets); bands of ones and zeros, and diagonals, are no such table."""
    columns = np.unique(table.reshape(-1, table.shape[-1]), axis=0)  # heads may repeat
    different, numbers = np.unique(columns, axis=1, return_inverse=True)
    if different.shape[1] <= LEAST or 2 * len(np.unique(different)) <= different.size:
        return None
    order = np.argsort(np.unique(numbers, return_index=True)[1])  # in the order in which they come
    return np.argsort(order)[numbers.reshape(-1)][index]


def _distances(rows: int, columns: int) -> np.ndarray:
    """Number the distances of the places of a window: [i, j] for the one from i to j."""
    y, x = np.divmod(np.arange(rows * columns), columns)
    down, right = y[:, None] - y + rows - 1, x[:, None] - x + columns - 1
    return down * (2 * columns - 1) + right


def _table(array: np.ndarray, index: np.ndarray) -> np.ndarray:
    first = np.unique(index, return_index=True)[1]
    return np.ascontiguousarray(array.reshape(*array.shape[:-2], -1)[..., first])


def _repeated(table: np.ndarray) -> np.ndarray | None:
    """Return which of the different rows each row is, where heads repeat for every element of a batch."""
    rows = table.reshape(-1, table.shape[-1])
    _, first, numbers = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    if len(first) == len(rows):
        return None
    return np.argsort(np.argsort(first))[numbers.reshape(-1)].reshape(table.shape[:-1])


def _look_up(model: ir.Model, value: ir.Value, table: np.ndarray, found: LookedUp) -> None:
    """Keep the table as the tensor, and look it up in the graph."""
    whole = ir.Value(name=f"{value.name}/looked_up", shape=value.shape, type=value.type)
    ir.convenience.replace_all_uses_with(value, whole)
    steps = [(found.index, table.ndim - 1, whole)]
    if found.rows is not None:
        heads = ir.Value(name=f"{value.name}/rows", shape=ir.Shape(table.shape), type=value.type)
        steps.insert(0, (found.rows, 0, heads))
        first = np.unique(found.rows, return_index=True)[1]
        table = np.ascontiguousarray(table.reshape(-1, table.shape[-1])[first])
    value.const_value, value.shape = ir.Tensor(table, name=value.name), ir.Shape(table.shape)
    current = value
    for numbers, axis, out in steps:
        places = ir.Value(
            name=f"{out.name}/places", const_value=ir.tensor(numbers.astype(np.int64))
        )
        places.const_value.name, places.dtype = places.name, ir.DataType.INT64
        places.shape = ir.Shape(numbers.shape)
        model.graph.register_initializer(places)
        attributes = [ir.AttrInt64("axis", axis)]
        insert(
            model,
            ir.Node("", "Gather", [current, places], attributes, outputs=[out], name=out.name),
            current,
        )
        current = out
