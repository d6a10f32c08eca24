"""A dataset: named columns with one row per sample, read in order or shuffled, all rows or some."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxgrad.data.ragged import Ragged
from onnxgrad.data.share import Share
from onnxgrad.errors import DataError
from onnxgrad.notes import Note


@dataclass(frozen=True)
class Column:
    """What one row of a column is."""

    dtype: np.dtype
    shape: tuple[int, ...]


Part = tuple[np.ndarray, dict[str, np.ndarray]]  # numbers of the rows, and their columns


class Table:
    """Columns that can be asked for any rows: arrays, memory-mapped arrays, folders of images.

    `loose` says that the format writes 1 and 1.0 alike, so that integers may stand for floats.
    `classes` is the order of the classes that the labels name. `gaps` says of a column where its first
    cell without a value is; `filled` are the columns whose gaps somebody takes care of. `names` are those
    of the rows, such as files; `notes` say what was read in another form than it stands in the file.
    """

    def __init__(
        self,
        source: str,
        arrays: Mapping[str, Any],
        *,
        where: Callable[[int], str] | None = None,
        loose: bool = False,
        classes: list[str] | None = None,
        gaps: Mapping[str, str] | None = None,
        names: list[str] | None = None,
        notes: list[Note] | None = None,
    ):
        self.source, self.arrays = source, dict(arrays)
        self.columns = {n: Column(a.dtype, tuple(a.shape[1:])) for n, a in arrays.items()}
        self.rows = len(next(iter(arrays.values())))
        self.where = where or (lambda row: f"row {row}")
        self.loose, self.classes = loose, classes or []
        self.gaps, self.filled = dict(gaps or {}), set()
        self.names, self.notes = names or [], notes or []

    def head(self, name: str, count: int = 1 << 16) -> np.ndarray:
        """The first rows of one column."""
        return np.asarray(self.arrays[name][:count])

    def words(self, name: str) -> np.ndarray:
        """The different values of a column of text, sorted."""
        array = self.arrays[name]
        return np.unique(array.flat() if isinstance(array, Ragged) else array)

    def column(self, name: str) -> np.ndarray:
        """All rows of one column."""
        return np.concatenate([arrays[name] for _, arrays in self.parts([name], 1 << 16)])

    def parts(
        self,
        names: list[str],
        size: int,
        rng: np.random.Generator | None = None,
        chosen: np.ndarray | None = None,
        start: int = 0,
    ) -> Iterator[Part]:
        """Yield `size` rows at a time, the last time what is left; from part `start` on.

        `chosen` are the rows to use, in rising order (default all); `rng` shuffles them.
        """
        rows = np.arange(self.rows) if chosen is None else chosen
        if rng is not None:
            rows = rng.permutation(rows)
        for begin in range(start * size, len(rows), size):
            part = rows[begin : begin + size]
            yield part, {n: np.asarray(self.arrays[n][part]) for n in names}

    def shares(
        self,
        names: list[str],
        size: int,
        share: Share,
        rng: np.random.Generator | None = None,
        chosen: np.ndarray | None = None,
        start: int = 0,
    ) -> Iterator[Part]:
        """As `parts`, of each part the rows of a share; no others are read."""
        rows = np.arange(self.rows) if chosen is None else chosen
        if rng is not None:
            rows = rng.permutation(rows)
        for begin in range(start * size, len(rows), size):
            bounds = share.bounds(min(size, len(rows) - begin))
            part = rows[begin + bounds[0] : begin + bounds[-1]]
            yield part, {n: np.asarray(self.arrays[n][part]) for n in names}


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_lengths(source: str, arrays: Mapping[str, Any]) -> None:
    """Refuse arrays that differ in their number of rows, or have none."""
    counts = {name: len(a) for name, a in arrays.items()}
    if not counts or max(counts.values()) == 0:
        raise DataError(f"{source} has no rows")
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{n} has {c:,}" for n, c in counts.items())
        raise DataError(f"{source}: the arrays differ in their number of rows: {listed}")


def rejoin(parts: Iterator[Part], size: int) -> Iterator[Part]:
    """Cut parts of any lengths into parts of `size` rows; the last may be shorter."""
    waiting: list[Part] = []
    count = 0
    for part in parts:
        waiting.append(part)
        count += len(part[0])
        if count < size:
            continue
        rows, arrays = joined(waiting)
        for begin in range(0, count - size + 1, size):
            cut = slice(begin, begin + size)
            yield rows[cut], {n: a[cut] for n, a in arrays.items()}
        rest = slice(count - count % size, count)
        waiting = [(rows[rest], {n: a[rest] for n, a in arrays.items()})]
        count %= size
    if count:
        yield joined(waiting)


def batch_sizes(rows: int, size: int) -> list[int]:
    """How many rows each batch has: `size`, the last what is left."""
    return [min(size, rows - begin) for begin in range(0, rows, size)]


def in_pieces(parts: Iterator[Part], sizes: Iterable[int], nothing: Part) -> Iterator[Part]:
    """Cut parts of any lengths into pieces of the given sizes, which may be 0; `nothing` is a part of no rows."""
    waiting, count = [nothing], 0
    for size in sizes:
        while count < size:
            part = next(parts)
            waiting.append(part)
            count += len(part[0])
        rows, arrays = joined([part for part in waiting if len(part[0])] or [nothing])
        yield rows[:size], {n: a[:size] for n, a in arrays.items()}
        waiting = [(rows[size:], {n: a[size:] for n, a in arrays.items()})]
        count -= size


def joined(parts: list[Part]) -> Part:
    """Several parts as one."""
    if len(parts) == 1:
        return parts[0]
    rows = np.concatenate([rows for rows, _ in parts])
    return rows, {n: np.concatenate([arrays[n] for _, arrays in parts]) for n in parts[0][1]}
