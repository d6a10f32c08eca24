"""Constants that repeat one row: a parameter that an exporter expanded to the size of its batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxgrad.model import origin
from onnxgrad.model.change import Change, Draft
from onnxgrad.model.patterns import is_uniform
from onnxgrad.model.roles import TYPES, made_by
from onnxgrad.notes import Note

# Operators that a parameter reaches expanded; the weights of layers are never so.
READERS = {"Add", "Sub", "Mul", "Div", "Concat", "Where", "Sum"}
_RECURRENT = {"LSTM", "GRU", "RNN"}  # their first states are [directions, batch, size]


@dataclass(frozen=True)
class Repeated:
    """`of` is the parameter whose numbers the rows are, where the file has it beside them; else empty."""

    name: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    of: str = ""


class Repeat(Change):
    """Trains one row of a tensor that holds it many times, and writes it as often again.

    A class token, say, that was expanded to a batch of a fixed size: the rows of one parameter would
    otherwise go their own ways. Who reads it does not matter where the exporter tells of the expansion.
    """

    def __init__(self) -> None:
        self.found: list[Repeated] = []

    def apply(self, model: ir.Model) -> None:
        batch = _fixed_batch(model)
        for value in list(model.graph.initializers.values()):
            tensor = value.const_value
            if value.dtype not in TYPES or tensor is None or len(tensor.shape) < 2:
                continue
            place = _place_of_batch(value)
            told = origin.is_expanded(value.name or "", value.metadata_props)
            axes, of = (), ""
            if told or (place is not None and is_made_up(value)):
                axes = _axes(tensor.numpy(), -1 if place is None else place, batch)
                of = _named(model, value, axes) if axes else ""
            if origin.is_one_row(value.name or "", value.metadata_props):
                every = tuple(a for a, size in enumerate(tensor.shape[:-1]) if size > 1)
                array = tensor.numpy()
                axes = every if (array == _row(array, every)).all() else axes
            elif not axes and origin.is_product(value.name or "", value.metadata_props):
                every = tuple(a for a, size in enumerate(tensor.shape[:-1]) if size > 1)
                of = _named(model, value, every) if every else ""
                axes = every if of else ()
            if axes:
                self.found.append(Repeated(value.name, tuple(tensor.shape), axes, of))
                _shrink(model, value, axes, of)

    def describe(self) -> Iterable[Note]:
        for r in self.found:
            times = int(np.prod([r.shape[a] for a in r.axes]))
            what = f"{r.of!r}" if r.of else "one row"
            yield Note(
                "repeated",
                r.name,
                f"tensor {r.name!r} of shape {list(r.shape)} repeats {what} {times} times, as an "
                f"exporter expands a parameter: it trains as {'that' if r.of else 'that one row'}",
            )

    def write_back(self, draft: Draft) -> None:
        for r in self.found:
            array = draft.tensors.get(r.of or r.name)
            if array is not None:
                row = [1 if a in r.axes else size for a, size in enumerate(r.shape)]
                whole = np.broadcast_to(array.reshape(row), r.shape)
                draft.tensors[r.name] = np.ascontiguousarray(whole)


def is_made_up(value: ir.Value) -> bool:
    """The name is not a parameter's: an exporter computed the tensor."""
    return origin.FOLDED in value.metadata_props or origin.is_generated(value.name or "")


def _fixed_batch(model: ir.Model) -> int:
    """Return the first size of every input where they agree on a number, else 0."""
    sizes = {v.shape[0] for v in model.graph.inputs if v.shape is not None and len(v.shape)}
    size = sizes.pop() if len(sizes) == 1 else None
    return size if isinstance(size, int) else 0


def _place_of_batch(value: ir.Value) -> int | None:
    """Return the axis of the batch, -1 where there is none; None where something reads the tensor as a weight."""
    sites = list(value.uses())
    if sites and all(n.op_type in _RECURRENT and i in (5, 6) for n, i in sites):
        return 1
    if not sites or not all(n.op_type in READERS for n, _ in sites):
        return None
    # its first axis is the first of every result: eight channels of eight rows are not a batch
    results = [node.outputs[0].shape for node, _ in sites]
    alike = all(shape is not None and len(shape) == len(value.shape) for shape in results)
    return 0 if alike else -1


def _axes(array: np.ndarray, place: int, batch: int) -> tuple[int, ...]:
    """Return the axes along which all slices are equal; of equal elements, only that of the batch."""
    if not array.size:
        return ()
    if is_uniform(array):
        return (place,) if place >= 0 and array.shape[place] == batch > 1 else ()
    first = [np.take(array, [0], axis) for axis in range(array.ndim)]
    return tuple(
        axis for axis, row in enumerate(first) if array.shape[axis] > 1 and (array == row).all()
    )


def _row(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    part = array[tuple(slice(1) if a in axes else slice(None) for a in range(array.ndim))]
    return np.ascontiguousarray(part)


def _named(model: ir.Model, value: ir.Value, axes: tuple[int, ...]) -> str:
    """Return the parameter of the file whose numbers the row holds, among those it was computed from.

    The first step of a recurrent layer, say: the state is zero, and what is left of W·h + b is b.
    """
    array = value.const_value.numpy()
    row = _row(array, axes)
    parameters = origin.folded_parameters(value.metadata_props, made_by(model))
    modules = {n.rpartition(".")[0] for n in parameters}
    if len(modules) > 1 or not (array == row).all():
        return ""  # a first state that is learned has a part in it
    for name in origin.folded_from(value.metadata_props):
        other = model.graph.initializers.get(name)
        tensor = None if other is None else other.const_value
        if tensor is None or other is value or other.dtype != value.dtype:
            continue
        if _squeezed(tensor.shape) == _squeezed(row.shape) and np.array_equal(
            tensor.numpy().reshape(-1), row.reshape(-1)
        ):
            return name
    return ""


def _squeezed(shape: Iterable[int]) -> list[int]:
    return [size for size in shape if size != 1]


def _shrink(model: ir.Model, value: ir.Value, axes: tuple[int, ...], of: str) -> None:
    """Keep one slice as the tensor, or none where it is `of`'s, and expand it in the graph."""
    array, shape = value.const_value.numpy(), list(value.const_value.shape)
    small = _row(array, axes)
    whole = ir.Value(name=f"{value.name}/repeated", shape=ir.Shape(shape), type=value.type)
    size = ir.Value(name=f"{value.name}/shape", const_value=ir.tensor(np.array(shape, np.int64)))
    size.const_value.name, size.dtype, size.shape = (
        size.name,
        ir.DataType.INT64,
        ir.Shape([len(shape)]),
    )
    model.graph.register_initializer(size)
    ir.convenience.replace_all_uses_with(value, whole)
    if of:
        del model.graph.initializers[value.name]
        value = _reshaped(model, model.graph.initializers[of], small.shape, whole.name)
    else:
        value.const_value = ir.Tensor(small, name=value.name)
        value.shape = ir.Shape(small.shape)
    node = ir.Node("", "Expand", [value, size], outputs=[whole], name=whole.name)
    insert(model, node, value)


def _reshaped(model: ir.Model, value: ir.Value, shape: tuple[int, ...], name: str) -> ir.Value:
    """Return a parameter in the shape of the row; one that broadcasts to it stays as it is."""
    own = tuple(value.const_value.shape)
    if own == shape[len(shape) - len(own) :] and all(
        d == 1 for d in shape[: len(shape) - len(own)]
    ):
        return value
    wanted = ir.Value(name=f"{name}/row", const_value=ir.tensor(np.array(shape, np.int64)))
    wanted.const_value.name, wanted.dtype = wanted.name, ir.DataType.INT64
    wanted.shape = ir.Shape([len(shape)])
    model.graph.register_initializer(wanted)
    out = ir.Value(name=f"{name}/one", shape=ir.Shape(shape), type=value.type)
    insert(model, ir.Node("", "Reshape", [value, wanted], outputs=[out], name=out.name), value)
    return out


def insert(model: ir.Model, node: ir.Node, after: ir.Value) -> None:
    """Put a node at the beginning, or behind the one that makes what it reads."""
    if after.producer() is None:
        model.graph.insert_before(next(iter(model.graph)), node)
    else:
        model.graph.insert_after(after.producer(), node)
