"""Parquet as a table that is read in blocks, never whole: files larger than the memory are fine."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from onnxgrad.data.share import Share
from onnxgrad.data.table import Column, Part, Table, batch_sizes, in_pieces, joined, rejoin
from onnxgrad.errors import DataError, FileError, LimitError
from onnxgrad.files import limits
from onnxgrad.files.arrays import check_unpacked, text_array
from onnxgrad.files.boundary import first_line
from onnxgrad.files.paths import open_file, printable

BLOCK_BYTES = 64 << 20  # of one block in memory
MOST_ROWS = 1 << 16  # of one block
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}  # bytes of a number, where they are not 8


@dataclass(frozen=True)
class Lane:
    """Rows `first` to `last` (exclusive) of row groups taken one after the other."""

    groups: np.ndarray
    first: int
    last: int


class ParquetTable(Table):
    """Shuffling takes the row groups in random order, and the rows of each block in random order."""

    def __init__(self, path: Path):
        self.source, self.loose, self.classes = str(path), False, []
        self.names, self.notes = [], []
        self.arrays = {}  # none lies in memory
        self.gaps, self.filled = {}, set()  # gaps are met when their block is read
        self.where = lambda row: f"row {row}"
        self.size = path.stat().st_size
        self.file = _open(path)
        self.rows = self.file.metadata.num_rows
        self._check_columns(path)
        groups = range(self.file.num_row_groups)
        counts = [self.file.metadata.row_group(g).num_rows for g in groups]
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        first = self._first(1)
        self.columns = {n: Column(a.dtype, a.shape[1:]) for n, a in first.items()}
        width = sum(a.nbytes for a in first.values())
        self.block = int(np.clip(BLOCK_BYTES // max(width, 1), 1, MOST_ROWS))

    def _check_columns(self, path: Path) -> None:
        names = self.file.schema_arrow.names
        if not self.rows or not names:
            raise DataError(f"{path} has no rows")
        limits.check("columns", len(names), f"{path} has {len(names):,} columns")
        check_unpacked(_unpacked(self.file.metadata), self.size, printable(path))
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise DataError(f"{path} has two columns of the name {printable(twice[0])!r}")

    def _first(self, count: int, names: list[str] | None = None) -> dict[str, np.ndarray]:
        names = names or self.file.schema_arrow.names
        with self._damage():
            batch = next(iter(self.file.iter_batches(batch_size=count, columns=names)), None)
            if batch is None:
                raise DataError(f"{self.source} has no rows")
            return {n: self._array(batch.column(n), n, 0) for n in names}

    @contextlib.contextmanager
    def _damage(self) -> Iterator[None]:
        """What pyarrow says of pages that are damaged, as ours: its classes, or bare ones such as OSError."""
        try:
            yield
        except (DataError, LimitError):
            raise
        except (OSError, ValueError, LookupError, TypeError, RuntimeError) as error:
            raise DataError(f"{self.source} is damaged: {first_line(error)}") from error

    def head(self, name: str, count: int = 1 << 16) -> np.ndarray:
        return self._first(min(count, self.block), [name])[name]

    def words(self, name: str) -> np.ndarray:
        found: set[str] = set()
        for _, arrays in self._blocks([name], None):
            found.update(np.unique(arrays[name]))
        return np.array(sorted(found))

    def parts(self, names, size, rng=None, chosen=None, start=0) -> Iterator[Part]:
        if rng is None and start:  # in order: what lies before is not read
            lane = Lane(np.arange(self.file.num_row_groups), start * size, self.rows)
            return rejoin(self._lane(names, lane, None, self._wanted(chosen)), size)
        blocks = self._blocks(names, rng)
        if chosen is not None:
            wanted = self._wanted(chosen)
            blocks = (_kept(part, wanted[part[0]]) for part in blocks)
        return islice(rejoin(blocks, size), start, None)

    def shares(self, names, size, share, rng=None, chosen=None, start=0) -> Iterator[Part]:
        """The row groups, in random order, are cut into as many lanes of rows as a batch has micro-batches.

        Micro-batch v takes its rows from lane v, so a process reads the row groups of its own lanes alone,
        and the rows of a micro-batch do not depend on the number of processes.
        """
        groups = np.arange(self.file.num_row_groups)
        order = groups if rng is None else rng.permutation(groups)
        seeds = np.arange(share.of) if rng is None else rng.integers(0, 2**63, share.of)
        wanted = self._wanted(chosen)
        counts = batch_sizes(int(wanted.sum()), size)
        every = np.array([Share(0, share.of, share.of).sizes(c) for c in counts])  # [batch, lane]
        ends = np.concatenate([[0], np.cumsum(every.sum(0))])
        nothing = (np.arange(0), {n: a[:0] for n, a in self._first(1, names).items()})
        pieces = []
        for v in range(share.first, share.last):
            lane = Lane(order, int(ends[v]), int(ends[v + 1]))
            mixed = None if rng is None else np.random.default_rng(seeds[v])
            pieces.append(in_pieces(self._lane(names, lane, mixed, wanted), every[:, v], nothing))
        for number, parts in enumerate(zip(*pieces, strict=True)):
            if number >= start:
                yield joined([part for part in parts if len(part[0])] or [nothing])

    def _wanted(self, chosen: np.ndarray | None) -> np.ndarray:
        wanted = np.full(self.rows, chosen is None)
        if chosen is not None:
            wanted[chosen] = True
        return wanted

    def _lane(
        self, names: list[str], lane: Lane, rng: np.random.Generator | None, wanted: np.ndarray
    ) -> Iterator[Part]:
        """The wanted rows of a lane, block by block; those of a block in random order."""
        at = 0
        for group in lane.groups:
            rows = wanted[self.starts[group] : self.starts[group + 1]]
            begin, at = at, at + int(rows.sum())
            if at <= lane.first or begin >= lane.last:
                continue
            for part in self._blocks(names, None, [group]):
                here = np.flatnonzero(wanted[part[0]])
                kept = here[max(lane.first - begin, 0) : max(lane.last - begin, 0)]
                begin += len(here)
                if len(kept):
                    yield _kept(part, kept if rng is None else rng.permutation(kept))
                if begin >= lane.last:
                    break

    def _blocks(
        self,
        names: list[str],
        rng: np.random.Generator | None,
        groups: Iterable[int] | None = None,
    ) -> Iterator[Part]:
        with self._damage():
            yield from self._read_blocks(names, rng, groups)

    def _read_blocks(
        self, names: list[str], rng: np.random.Generator | None, chosen
    ) -> Iterator[Part]:
        groups = np.arange(self.file.num_row_groups) if chosen is None else chosen
        for group in groups if rng is None else rng.permutation(groups):
            row = int(self.starts[group])
            batches = self.file.iter_batches(self.block, row_groups=[int(group)], columns=names)
            for batch in batches:
                arrays = {n: self._array(batch.column(n), n, row) for n in names}
                rows = np.arange(row, row + batch.num_rows)
                row += batch.num_rows
                yield (
                    (rows, arrays)
                    if rng is None
                    else _kept((rows, arrays), rng.permutation(len(rows)))
                )

    def _array(self, values: Any, name: str, row: int) -> np.ndarray:
        """A column of numbers, text, or lists of equal lengths as an array; `row` is its first."""
        if hasattr(values, "to_numpy_ndarray"):  # tensors of a fixed shape
            self._refuse_nulls(values, name, row)
            return values.to_numpy_ndarray()
        shape: list[int] = [len(values)]
        while hasattr(values, "flatten") and not _is_plain(values):
            self._refuse_nulls(values, name, row)
            lengths = np.unique(np.asarray(values.value_lengths()))
            if len(lengths) > 1:
                raise DataError(
                    f"{self.source}: the lists of column '{name}' differ in length "
                    f"({lengths[0]} and {lengths[-1]}) from row {row} on"
                )
            shape.append(int(lengths[0]) if len(lengths) else 0)
            values = values.flatten()
        self._refuse_nulls(values, name, row)
        array = _plain(np.asarray(values.to_numpy(zero_copy_only=False)))
        if array.dtype == object:
            words = ["" if word is None else str(word) for word in array]
            array = text_array(words, f"{self.source}: column '{name}'", self.size)
        return array.reshape(shape)

    def _refuse_nulls(self, values: Any, name: str, row: int) -> None:
        if values.null_count and name not in self.filled:
            at = row + int(np.flatnonzero(np.asarray(values.is_null()))[0])
            raise DataError(f"{self.source}, row {at}: column '{name}' is empty")


def _open(path: Path) -> Any:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise DataError(
            f"{path}: reading Parquet needs pyarrow: pip install 'onnxgrad[parquet]'"
        ) from None
    try:
        return parquet.ParquetFile(open_file(path, "a Parquet file"), buffer_size=1 << 20)
    except FileError:
        raise
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a Parquet file: {error}") from error


def _plain(array: np.ndarray) -> np.ndarray:
    """Dates as text, as in other files, and spans of time as seconds."""
    if array.dtype.kind == "M":
        return np.where(np.isnat(array), "", array.astype("M8[us]").astype(str))
    return array / np.timedelta64(1, "s") if array.dtype.kind == "m" else array


def _unpacked(metadata: Any) -> int:
    """The bytes of all numbers, as far as the file says; a run of equal ones takes a few in it."""
    groups = (metadata.row_group(g) for g in range(metadata.num_row_groups))
    columns = (group.column(c) for group in groups for c in range(group.num_columns))
    return sum(WIDTHS.get(c.physical_type, 8) * c.num_values for c in columns)


def _is_plain(values: Any) -> bool:
    import pyarrow

    return not (
        pyarrow.types.is_list(values.type)
        or pyarrow.types.is_large_list(values.type)
        or pyarrow.types.is_fixed_size_list(values.type)
    )


def _kept(part: Part, which: np.ndarray) -> Part:
    rows, arrays = part
    return rows[which], {n: a[which] for n, a in arrays.items()}
