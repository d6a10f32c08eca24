"""Checks of a batch, before the step that would use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxgrad import _native
from onnxgrad.data.arrays import Batch
from onnxgrad.data.columns import fills_missing
from onnxgrad.errors import DataError
from onnxgrad.graph import infer as shapes
from onnxgrad.graph.infer import without_or_with_ones
from onnxgrad.notes import Note
from onnxgrad.train.losses import Target

# What exporters write for a size that has no name: two of them need not be equal.
NAMELESS = ("?", "-1", "")


@dataclass
class Expected:
    """What one input of a graph expects."""

    name: str
    kind: str  # "input" or "target"
    dtype: np.dtype
    dims: tuple[int | str | None, ...] | None
    classes: int | None = None
    ignore: int | None = None
    axis: int | None = None
    gaps: bool = False  # NaN stands for what is missing, and the model fills it


def of_input(value: ir.Value) -> Expected:
    """Return what a model's input expects."""
    dims = shapes.dims(value)
    if dims is not None:
        dims = tuple(None if d in NAMELESS else d for d in dims)
    return Expected(
        value.name, "input", np.dtype(value.dtype.numpy()), dims, gaps=fills_missing(value)
    )


def of_target(target: Target) -> Expected:
    """Return what a loss's target expects."""
    return Expected(
        target.name, "target", np.dtype(target.dtype), target.dims, target.classes, target.ignore,
        target.axis,
    )  # fmt: skip


class Checker:
    """Turns the arrays of a batch into what a session takes, or says what is wrong with them."""

    def __init__(self, expected: Iterable[Expected], notes: list[Note] | None = None):
        """`notes` is where it says what it took in another form."""
        self.expected = {e.name: e for e in expected}
        self.notes = [] if notes is None else notes

    def __call__(self, batch: Batch, optional: Iterable[str] = ()) -> dict[str, np.ndarray]:
        """Return contiguous arrays of the right types. Raises DataError with the key and the row."""
        self._check_names(batch.arrays, set(optional))
        ready, sizes = {}, {}
        for name, e in self.expected.items():
            if name not in batch.arrays:
                continue
            e = replace(e, name=batch.name_of(name)) if batch.called else e
            array = self._fitted(np.asarray(batch.arrays[name]), e)
            array = _converted(array, e)
            _check_shape(array, e, sizes)
            _check_values(array, e, batch)
            ready[name] = np.asarray(array, order="C")  # ascontiguousarray gives a scalar an axis
        return ready

    def _fitted(self, array: np.ndarray, e: Expected) -> np.ndarray:
        """Targets in another usual form: one-hot for labels, axes of length 1 more or less; a note says so once."""
        if e.kind != "target" or e.dims is None or _is_alike(array.shape, e.dims):
            return array
        rank = len(e.dims)
        if e.classes is not None and array.ndim == rank + 1 and _is_one_hot(array, e):
            self._note(e, f"target {e.name!r} is one-hot: the place of the 1 is taken as the label")
            return array.argmax(axis=e.axis).astype(np.int64)
        shape = without_or_with_ones(array.shape, e.dims)
        if shape in (None, array.shape):
            return array
        taken = "a column [N, 1]" if len(shape) == 2 and array.ndim == 1 else _text(e.dims)
        self._note(e, f"target {e.name!r} has shape {list(array.shape)}: taken as {taken}")
        return array.reshape(shape)

    def _note(self, e: Expected, text: str) -> None:
        if not any(n.kind == "target" and n.subject == e.name for n in self.notes):
            self.notes.append(Note("target", e.name, text))

    def _check_names(self, arrays: Mapping[str, object], optional: set[str]) -> None:
        for name, e in self.expected.items():
            if name not in arrays and name not in optional:
                given = ", ".join(map(repr, arrays)) or "nothing"
                raise DataError(f"{e.kind} {name!r} is missing; the batch has {given}")
        for name in arrays:
            if name not in self.expected:
                known = ", ".join(map(repr, self.expected))
                raise DataError(f"the batch has {name!r}, which is not one of {known}")


def _is_alike(shape: tuple[int, ...], dims: tuple) -> bool:
    if len(shape) != len(dims):
        return False
    return all(
        size == dim or not isinstance(dim, int) for size, dim in zip(shape, dims, strict=True)
    )


def _is_one_hot(array: np.ndarray, e: Expected) -> bool:
    if array.shape[e.axis] != e.classes or array.size == 0:
        return False
    return bool(np.isin(array, (0, 1)).all() and (array.sum(axis=e.axis) == 1).all())


def _converted(array: np.ndarray, e: Expected) -> np.ndarray:
    """Floats become the model's floats, integers its integers; a change of kind is refused."""
    if array.dtype == e.dtype:
        return array
    if e.dtype == object and array.dtype.kind == "U":
        return array.astype(object)
    kinds = {"f": "f", "i": "iu", "u": "iu", "b": "b"}
    if array.dtype.kind not in kinds.get(e.dtype.kind, e.dtype.kind):
        hint = ""
        if array.dtype.kind in "iufb" and e.dtype.kind in "iuf":
            hint = f"; convert it with .astype({str(e.dtype)!r}) if that is what it means"
        raise DataError(f"{e.kind} {e.name!r} has type {array.dtype}, expected {e.dtype}{hint}")
    if array.dtype.kind in "iu" and array.size:
        info = np.iinfo(e.dtype)
        if array.min() < info.min or array.max() > info.max:
            raise DataError(f"{e.kind} {e.name!r} holds values that do not fit into {e.dtype}")
    return array.astype(e.dtype)


def _check_shape(array: np.ndarray, e: Expected, sizes: dict[str, tuple[int, str]]) -> None:
    if e.dims is None:
        return
    wrong = len(array.shape) != len(e.dims)
    for size, dim in zip(array.shape, e.dims, strict=False):
        if isinstance(dim, int):
            wrong |= size != dim
        elif isinstance(dim, str) and not wrong:
            known, who = sizes.setdefault(dim, (size, e.name))
            if known != size:
                raise DataError(
                    f"{e.kind} {e.name!r} has shape {list(array.shape)}, "
                    f"expected {_text(e.dims)} with {dim} = {known} (from {who!r})"
                )
    if wrong:
        hint = ""
        if len(array.shape) == len(e.dims) and array.shape[1:] == e.dims[1:]:
            hint = f"; the model's batch size is fixed: use batch_size={e.dims[0]}"
        elif e.axis is not None and len(array.shape) == len(e.dims) > 1:
            hint = f"; the classes are taken from axis {e.axis} of the output: CrossEntropy(axis=...) says otherwise"
        raise DataError(
            f"{e.kind} {e.name!r} has shape {list(array.shape)}, expected {_text(e.dims)}{hint}"
        )


def _text(dims: tuple) -> str:
    return "[" + ", ".join("?" if d is None else str(d) for d in dims) + "]"


# Both are asked of every batch. NumPy answers what our own functions do not read.
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_INTEGERS = (np.dtype(np.int32), np.dtype(np.int64))


def _lies_plainly(array: np.ndarray) -> bool:
    return array.flags.c_contiguous and array.flags.aligned


def _holds_nan(array: np.ndarray) -> bool:
    if array.dtype in _FLOATS and _lies_plainly(array):
        return _native.holds_nan(array)
    return bool(np.isnan(array.min()))  # min passes NaN on


def _lies_within(labels: np.ndarray, classes: int) -> bool:
    """Whether every label is 0 to classes - 1."""
    if labels.dtype in _INTEGERS and _lies_plainly(labels):
        least, largest = _native.least_and_largest(labels)
    else:
        least, largest = labels.min(), labels.max()
    return bool(least >= 0 and largest < classes)


def _check_values(array: np.ndarray, e: Expected, batch: Batch) -> None:
    if array.size == 0:
        return
    if array.dtype.kind == "f":
        if not e.gaps and _holds_nan(array):
            row = int(np.argwhere(np.isnan(array))[0][0]) if array.ndim else 0
            raise DataError(f"{e.kind} {e.name!r} holds NaN in {batch.where(row)}")
    elif e.classes is not None and not _lies_within(array, e.classes):
        bad = (array < 0) | (array >= e.classes)
        if e.ignore is not None:
            bad &= array != e.ignore
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            also = "" if e.ignore is None else f" or {e.ignore}"
            raise DataError(
                f"{e.kind} {e.name!r} holds the label {array[at]} in {batch.where(at[0])}, "
                f"expected 0 to {e.classes - 1}{also}"
            )
