"""A part of every batch: the micro-batches that one of several processes computes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from onnxgrad.errors import DataError

if TYPE_CHECKING:
    from onnxgrad.data.arrays import Batch, Data


@dataclass(frozen=True)
class Share:
    """Micro-batches `first` to `last` (exclusive) of the `of` into which every batch is cut."""

    first: int
    last: int
    of: int

    def bounds(self, rows: int) -> list[int]:
        """Where the micro-batches of this share begin, and where the last one ends, in a batch of so many rows.

        The cut depends on nothing but `rows` and `of`; a batch with fewer rows leaves later ones empty.

        >>> Share(0, 4, 4).bounds(10), Share(2, 4, 4).bounds(10)
        ([0, 3, 5, 8, 10], [5, 8, 10])
        """
        return [-(-v * rows // self.of) for v in range(self.first, self.last + 1)]

    def sizes(self, rows: int) -> list[int]:
        """How many rows each of its micro-batches has."""
        bounds = self.bounds(rows)
        return [b - a for a, b in itertools.pairwise(bounds)]


def share_of_rank(rank: int, size: int, of: int) -> Share:
    """The share of one of `size` processes: neighbouring micro-batches, as even as can be.

    >>> [share_of_rank(r, 2, 8) for r in range(2)]
    [Share(first=0, last=4, of=8), Share(first=4, last=8, of=8)]
    """
    return Share(rank * of // size, (rank + 1) * of // size, of)


def shared_epoch(data: Data, epoch: int, start: int, share: Share) -> Iterator[Batch]:
    """The batches of an epoch, of each only the rows of a share; data that can reads no others."""
    if hasattr(data, "epoch_share"):
        return data.epoch_share(epoch, start, share)
    return (cut(batch, share) for batch in data.epoch(epoch, start))


def cut(batch: Batch, share: Share) -> Batch:
    """The rows of a share of a whole batch."""
    counts = {name: len(a) for name, a in batch.arrays.items() if np.ndim(a)}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name!r} has {count}" for name, count in counts.items())
        raise DataError(
            f"batch {batch.number} cannot be cut into micro-batches: its arrays differ in their first axis ({listed}); "
            "expected one row per sample in each"
        )
    rows = next(iter(counts.values()), 0)
    bounds = share.bounds(rows)
    mine = slice(bounds[0], bounds[-1])
    arrays = {name: a[mine] if np.ndim(a) else a for name, a in batch.arrays.items()}
    numbers = None if batch.rows is None else batch.rows[mine]
    return replace(batch, arrays=arrays, rows=numbers, cuts=offsets(bounds), total=rows)


def offsets(bounds: list[int]) -> tuple[int, ...]:
    """Bounds counted from the first row of the share."""
    return tuple(b - bounds[0] for b in bounds)
