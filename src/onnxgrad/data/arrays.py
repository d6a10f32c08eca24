"""Batches: from arrays in memory (or memory-mapped), or from any iterable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from onnxgrad.data.digest import digest
from onnxgrad.data.foreign import TARGET_NAMES, ColumnTable, array_of, columns_of
from onnxgrad.data.share import Share, offsets
from onnxgrad.errors import DataError


@dataclass(frozen=True)
class Batch:
    """Arrays by name, and where they come from: `rows` of the data, or the batch's number.

    `place` names a row of the data in its own terms, such as the line of a file; `called` has the names
    that the data has for arrays, such as the column of a target. Of a batch that several processes share,
    `cuts` are where the micro-batches of this one begin and end, and `total` counts the rows of all of them.
    """

    arrays: dict[str, Any]
    number: int
    rows: np.ndarray | None = None
    place: Callable[[int], str] | None = None
    called: Mapping[str, str] | None = None
    cuts: tuple[int, ...] | None = None
    total: int | None = None

    @property
    def rows_here(self) -> int:
        """How many rows the arrays have."""
        return next((len(a) for a in self.arrays.values() if np.ndim(a)), 1)

    def where(self, row: int) -> str:
        """Name a row for a message."""
        if self.rows is not None:
            number = int(self.rows[row])
            return self.place(number) if self.place else f"row {number}"
        return f"row {row} of batch {self.number}"

    def name_of(self, array: str) -> str:
        """Name an array for a message."""
        return (self.called or {}).get(array, array)


@runtime_checkable
class Data(Protocol):
    """What `fit` and `evaluate` take: batches, epoch by epoch, the same ones whenever they are asked for.

    A run that is resumed asks for those of an epoch from number `start` on. `len(data)`, where there is
    one, is the number of batches of an epoch; schedules and progress bars use it.
    """

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch."""


class ArrayData:
    """Arrays with one row per sample, cut into batches; the last one may be short."""

    def __init__(self, arrays: Mapping[str, Any], batch_size: int, shuffle: bool, seed: int):
        self.arrays = {name: _as_array(name, a) for name, a in arrays.items()}
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, expected at least 1")
        self.batch_size, self.shuffle, self.seed = batch_size, shuffle, seed
        sizes = {name: len(a) for name, a in self.arrays.items()}
        self.rows = next(iter(sizes.values()), 0)
        for name, size in sizes.items():
            if size != self.rows:
                first = next(iter(sizes))
                raise DataError(f"{name!r} has {size} rows, and {first!r} has {self.rows}")
        if self.rows == 0:
            raise DataError("the data has no rows")

    def __len__(self) -> int:
        return -(-self.rows // self.batch_size)

    def digest(self) -> str:
        """Return a hash of the data."""
        rows = max(1, min(self.rows, 1024))
        parts = (slice(at, at + rows) for at in range(0, self.rows, rows))
        return digest({n: a[part] for n, a in self.arrays.items()} for part in parts)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on. The order depends on seed and epoch."""
        order = self._order(epoch)
        for number in range(start, len(self)):
            part = slice(number * self.batch_size, (number + 1) * self.batch_size)
            rows = np.arange(self.rows)[part] if order is None else order[part]
            chosen = part if order is None else rows
            yield Batch({n: a[chosen] for n, a in self.arrays.items()}, number, rows)

    def epoch_share(self, epoch: int, start: int, share: Share) -> Iterator[Batch]:
        """As `epoch`, of each batch the rows of a share; no others are read."""
        order = self._order(epoch)
        for number in range(start, len(self)):
            begin = number * self.batch_size
            total = min(self.batch_size, self.rows - begin)
            bounds = share.bounds(total)
            rows = np.arange(begin + bounds[0], begin + bounds[-1])
            rows = rows if order is None else order[rows]
            arrays = {n: a[rows] for n, a in self.arrays.items()}
            yield Batch(arrays, number, rows, cuts=offsets(bounds), total=total)

    def _order(self, epoch: int) -> np.ndarray | None:
        if not self.shuffle:
            return None
        return np.random.default_rng([self.seed, epoch]).permutation(self.rows)


class StreamData:
    """An iterable of batches, or a function from the epoch to one; a resumed epoch skips what it had."""

    def __init__(self, source: Iterable | Callable[[int], Iterable], names: Names):
        self.source, self.names = source, names
        if isinstance(source, Iterator):
            # An iterator ends with its first epoch; what it gave cannot be had again.
            raise ValueError(
                "the batches come from an iterator, which can be used only once; "
                "give a list, or a function that returns a new iterator for every epoch"
            )

    def __len__(self) -> int:
        return len(self.source)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        batches = self.source(epoch) if callable(self.source) else self.source
        for number, batch in enumerate(batches):
            if number >= start:
                yield Batch(self.names.to_dict(batch), number)


class TableData:
    """The rows of a dataset, read as they are needed; the order depends on seed and epoch."""

    def __init__(
        self, source: ColumnTable, names: Names, batch_size: int, shuffle: bool, seed: int
    ):
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, expected at least 1")
        self.columns = columns_of(source.column_names, names.inputs, names.targets)
        self.source = source.with_format(
            "numpy", columns=list(dict.fromkeys(self.columns.values()))
        )
        self.rows, self.batch_size, self.shuffle, self.seed = len(source), batch_size, shuffle, seed
        if self.rows == 0:
            raise DataError("the dataset has no rows")

    def __len__(self) -> int:
        return -(-self.rows // self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on."""
        order = np.arange(self.rows)
        if self.shuffle:
            order = np.random.default_rng([self.seed, epoch]).permutation(self.rows)
        for number in range(start, len(self)):
            rows = order[number * self.batch_size : (number + 1) * self.batch_size]
            got = self.source[rows.tolist()]
            arrays = {name: np.asarray(got[column]) for name, column in self.columns.items()}
            yield Batch(arrays, number, rows)


@dataclass(frozen=True)
class Names:
    """The names by which a batch gives the model's inputs and the loss's targets."""

    inputs: tuple[str, ...]
    targets: tuple[str, ...]

    def to_dict(self, batch: Any) -> dict[str, Any]:
        """Return a batch, a dict or a pair (x, y), as one dict."""
        if isinstance(batch, Mapping):
            return self._of_mapping(batch)
        if isinstance(batch, (tuple, list)):
            if len(batch) == 2:
                return self.join(*batch)
            if len(batch) == len(self.inputs) + len(self.targets):
                every = zip((*self.inputs, *self.targets), batch, strict=True)
                return {name: array_of(value) for name, value in every}
        raise DataError(
            f"a batch is a {type(batch).__name__}, expected a dict by name or a pair (x, y)"
        )

    def _of_mapping(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """A batch by name; the one target may be called as in other libraries, such as labels."""
        arrays = {name: array_of(value) for name, value in batch.items()}
        if len(self.targets) == 1 and self.targets[0] not in arrays:
            usual = [n for n in TARGET_NAMES if n in arrays and n not in self.inputs]
            if len(usual) == 1:
                arrays[self.targets[0]] = arrays.pop(usual[0])
        return arrays

    def join(self, x: Any, y: Any = None) -> dict[str, Any]:
        """Return x and y, each an array or a dict by name, as one dict."""
        given = self._named(x, self.inputs, "x", "input")
        if y is not None:
            given.update(self._named(y, self.targets, "y", "target"))
        return given

    def _named(self, value: Any, names: tuple[str, ...], what: str, kind: str) -> dict[str, Any]:
        if type(value) is np.ndarray and len(names) == 1:  # mostly: in every step
            return {names[0]: value}
        if isinstance(value, Mapping):
            return {name: array_of(v) for name, v in value.items()}
        if isinstance(value, (tuple, list)) and len(names) > 1 and len(value) == len(names):
            return {name: array_of(v) for name, v in zip(names, value, strict=True)}
        if len(names) == 1:
            return {names[0]: array_of(value)}
        listed = ", ".join(map(repr, names)) or "none"
        raise DataError(f"{what} is one array, and the {kind}s are {listed}: give a dict by name")


def _as_array(name: str, array: Any) -> np.ndarray:
    array = array if isinstance(array, np.ndarray) else np.asarray(array)
    if array.ndim == 0:
        raise DataError(f"{name!r} is a single number, expected one row per sample")
    return array


def make_data(x: Any, y: Any, names: Names, batch_size: int, shuffle: bool, seed: int) -> Data:
    """Return the data that the arguments of `fit` mean."""
    if isinstance(x, Data) and callable(x.epoch):
        return x
    if y is None and isinstance(x, ColumnTable):
        return TableData(x, names, batch_size, shuffle, seed)
    if y is None and not isinstance(x, (np.ndarray, Mapping)) and (
        callable(x) or isinstance(x, Iterable)
    ):  # fmt: skip
        return StreamData(x, names)
    return ArrayData(names.join(x, y), batch_size, shuffle, seed)
