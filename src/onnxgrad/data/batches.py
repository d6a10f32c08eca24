"""Rows of a table as batches of a model: inputs by name, and the target in the form that the loss takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from onnxgrad.data.arrays import Batch
from onnxgrad.data.augment import Augment
from onnxgrad.data.digest import digest
from onnxgrad.data.goals import Goal, RowWeights
from onnxgrad.data.images import Images
from onnxgrad.data.matching import Matched
from onnxgrad.data.ragged import LengthFeed, PaddedFeed
from onnxgrad.data.share import Share, cut, offsets
from onnxgrad.data.table import Table
from onnxgrad.data.texts import TextFeed


class Batches:
    """What `Trainer.fit` and `evaluate` take: a table, some rows of it, and how they become batches."""

    def __init__(
        self,
        table: Table,
        matched: Matched,
        goals: list[Goal | RowWeights],
        batch_size: int,
        *,
        chosen: np.ndarray | None = None,
        shuffle: bool = False,
        seed: int = 0,
        whole_only: bool = False,
        augment: Augment | None = None,
    ):
        """`augment` changes pictures at random, in the batches of epochs alone."""
        self.table, self.matched, self.goals = table, matched, goals
        self.batch_size, self.chosen, self.shuffle, self.seed = batch_size, chosen, shuffle, seed
        rows = table.rows if chosen is None else len(chosen)
        self.rows = rows - rows % batch_size if whole_only else rows
        self.augment = augment or Augment()
        pictures = matched.columns if self.augment else []
        self._varied = [n for n in pictures if isinstance(table.arrays.get(n), Images)]

    def __len__(self) -> int:
        return -(-self.rows // self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on. The order depends on seed and epoch."""
        return self._batches(self._rng(epoch), start, [self.seed, epoch])

    def epoch_share(self, epoch: int, start: int, share: Share) -> Iterator[Batch]:
        """As `epoch`, of each batch the rows of a share; no others are read, unless rows depend on each other."""
        if self._joint():
            yield from (cut(batch, share) for batch in self.epoch(epoch, start))
            return
        rng, seed = self._rng(epoch), [self.seed, epoch]
        names = self._columns(self._varied)
        parts = self.table.shares(names, self.batch_size, share, rng, self.chosen, start)
        for number, (rows, arrays) in zip(range(start, len(self)), parts, strict=False):
            total = min(self.batch_size, self.rows - number * self.batch_size)
            batch = self._batch(number, rows, arrays, seed)
            yield replace(batch, cuts=offsets(share.bounds(total)), total=total)

    def _joint(self) -> bool:
        """Whether a row of a batch depends on the others: mixed with them, or filled up to the longest."""
        unequal = (PaddedFeed, LengthFeed, TextFeed)
        return bool(self._varied and self.augment.mixup) or any(
            isinstance(feed, unequal) for feed in self.matched.inputs.values()
        )

    def _rng(self, epoch: int) -> np.random.Generator | None:
        return np.random.default_rng([self.seed, epoch]) if self.shuffle else None

    def digest(self) -> str:
        """Return a hash of the data."""
        return digest(batch.arrays for batch in self.in_order())

    def in_order(self) -> Iterator[Batch]:
        """Yield the batches as the rows lie, the fastest way through them."""
        return self._batches(None, 0)

    def _batches(
        self, rng: np.random.Generator | None, start: int, seed: list[int] | None = None
    ) -> Iterator[Batch]:
        names = self._columns(self._varied if seed is not None else [])
        parts = self.table.parts(names, self.batch_size, rng, self.chosen, start)
        for number, (rows, arrays) in zip(range(start, len(self)), parts, strict=False):
            yield self._batch(number, rows, arrays, seed)

    def _columns(self, without: list[str]) -> list[str]:
        wanted = (c for goal in self.goals for c in goal.columns)
        names = dict.fromkeys([*self.matched.columns, *wanted])
        return [name for name in names if name not in without]

    def _batch(
        self, number: int, rows: np.ndarray, arrays: dict[str, np.ndarray], seed: list[int] | None
    ) -> Batch:
        """`seed` begins the random changes of pictures; None leaves them as they are."""
        varied = self._varied if seed is not None else []
        for name in varied:
            arrays[name] = self.table.arrays[name].varied(rows, self.augment, seed)
        called = {goal.name: ", ".join(goal.columns) for goal in self.goals}
        batch = {name: feed(arrays) for name, feed in self.matched.inputs.items()}
        batch.update((goal.name, goal(arrays, rows, self.table)) for goal in self.goals)
        if varied and self.augment.mixup:
            mixed = [n for n, f in self.matched.inputs.items() if set(f.columns) & set(varied)]
            mixed += [goal.name for goal in self.goals if isinstance(goal, Goal)]
            batch = self.augment.mixed(batch, mixed, [*seed, number])
        return Batch(batch, number, rows, self.table.where, called)
