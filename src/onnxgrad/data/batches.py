"""Rows of a table as batches of a model: inputs by name, and the target in the form that the loss takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxgrad.data.arrays import Batch
from onnxgrad.data.digest import digest
from onnxgrad.data.matching import Matched
from onnxgrad.data.share import Share, offsets
from onnxgrad.data.table import Table
from onnxgrad.errors import DataError


@dataclass(frozen=True)
class Goal:
    """What the loss wants as its target. `name` is the trainer's name for it."""

    name: str
    columns: tuple[str, ...]
    labels: bool  # whole numbers that name classes
    column: bool  # [N, 1] from [N], as the model's output is
    dtype: np.dtype
    classes: list[str]
    ignored: int | None = None  # a label that no loss counts
    shares: int = 0  # of so many classes: a row of shares in the place of a label

    def __call__(self, arrays: dict[str, np.ndarray], rows: np.ndarray, table: Table) -> np.ndarray:
        parts = [self._one(arrays[name], name, rows, table) for name in self.columns]
        made = parts[0] if len(parts) == 1 else np.stack(parts, 1)
        made = made[:, None] if self.column and made.ndim == 1 else made
        return np.eye(self.shares, dtype=self.dtype)[made] if self.shares else made

    def _one(self, column: np.ndarray, name: str, rows: np.ndarray, table: Table) -> np.ndarray:
        if column.dtype.kind in "US":
            column = self._numbered(column, rows, table)
        if self.labels and column.dtype.kind == "f":
            column = _whole(column, rows, table, name)
        elif not self.labels and column.dtype.kind in "iub":
            column = column.astype(self.dtype)
        if self.shares and (column.min() < 0 or column.max() >= self.shares):
            row = int(np.flatnonzero((column < 0) | (column >= self.shares))[0])
            where = table.where(int(rows[row]))
            raise DataError(
                f"{table.source}, {where}: the label is {column[row]}, expected 0 to {self.shares - 1}"
            )
        return column

    def _numbered(self, column: np.ndarray, rows: np.ndarray, table: Table) -> np.ndarray:
        numbers = {word: i for i, word in enumerate(self.classes)}
        for row, word in zip(rows, column, strict=True):
            if str(word) not in numbers:
                known = ", ".join(self.classes[:8]) + (" …" if len(self.classes) > 8 else "")
                known = known or "numbers"
                raise DataError(
                    f"{table.source}, {table.where(int(row))}: the label is {str(word)!r}, expected one of {known}"
                )
        return np.array([numbers[str(word)] for word in column], np.int64)


@dataclass(frozen=True)
class RowWeights:
    """A column of weights of rows, in the form that the loss takes."""

    name: str
    columns: tuple[str, ...]
    dtype: np.dtype

    def __call__(self, arrays: dict[str, np.ndarray], rows: np.ndarray, table: Table) -> np.ndarray:
        column = arrays[self.columns[0]]
        bad = column.dtype.kind not in "iufb" or column.ndim != 1
        wrong = np.zeros(1, int) if bad else np.flatnonzero(~(column >= 0) | ~np.isfinite(column))
        if len(wrong):
            where = table.where(int(rows[wrong[0]]))
            raise DataError(
                f"{table.source}, {where}: the weight '{self.columns[0]}' is {column[wrong[0]]}, expected a number >= 0"
            )
        return column.astype(self.dtype)


def _whole(column: np.ndarray, rows: np.ndarray, table: Table, source: str) -> np.ndarray:
    bad = ~np.isfinite(column) | (column != np.floor(column))
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise DataError(
            f"{table.source}, {table.where(int(rows[at[0]]))}: the label '{source}' is {column[at]:g}, "
            "expected a whole number"
        )
    return column.astype(np.int64)


# Losses whose targets are numbers of classes.
LABELLED = ("cross_entropy", "nll", "nll_probabilities")


def goal(
    loss: object,
    output: ir.Value,
    target: np.ndarray,
    name: str,
    columns: tuple[str, ...],
    classes: list[str],
) -> Goal:
    """What `loss` of `output` wants, for targets such as `target`."""
    labels = loss in LABELLED
    shape = None if output.shape is None else list(output.shape)
    column = not labels and target.ndim == 1 and shape is not None and len(shape) == 2
    column = column and shape[1] in (1, None)
    return Goal(name, columns, labels, column, np.dtype(output.dtype.numpy()), classes)  # fmt: skip


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
    ):
        self.table, self.matched, self.goals = table, matched, goals
        self.batch_size, self.chosen, self.shuffle, self.seed = batch_size, chosen, shuffle, seed
        rows = table.rows if chosen is None else len(chosen)
        self.rows = rows - rows % batch_size if whole_only else rows

    def __len__(self) -> int:
        return -(-self.rows // self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on. The order depends on seed and epoch."""
        return self._batches(self._rng(epoch), start)

    def epoch_share(self, epoch: int, start: int, share: Share) -> Iterator[Batch]:
        """As `epoch`, of each batch the rows of a share; no others are read."""
        rng = self._rng(epoch)
        parts = self.table.shares(self._columns(), self.batch_size, share, rng, self.chosen, start)
        for number, (rows, arrays) in zip(range(start, len(self)), parts, strict=False):
            total = min(self.batch_size, self.rows - number * self.batch_size)
            yield replace(
                self._batch(number, rows, arrays), cuts=offsets(share.bounds(total)), total=total
            )

    def _rng(self, epoch: int) -> np.random.Generator | None:
        return np.random.default_rng([self.seed, epoch]) if self.shuffle else None

    def digest(self) -> str:
        """Return a hash of the data."""
        return digest(batch.arrays for batch in self.in_order())

    def in_order(self) -> Iterator[Batch]:
        """Yield the batches as the rows lie, the fastest way through them."""
        return self._batches(None, 0)

    def _batches(self, rng: np.random.Generator | None, start: int) -> Iterator[Batch]:
        parts = self.table.parts(self._columns(), self.batch_size, rng, self.chosen, start)
        for number, (rows, arrays) in zip(range(start, len(self)), parts, strict=False):
            yield self._batch(number, rows, arrays)

    def _columns(self) -> list[str]:
        wanted = (c for goal in self.goals for c in goal.columns)
        return list(dict.fromkeys([*self.matched.columns, *wanted]))

    def _batch(self, number: int, rows: np.ndarray, arrays: dict[str, np.ndarray]) -> Batch:
        called = {goal.name: ", ".join(goal.columns) for goal in self.goals}
        batch = {name: feed(arrays) for name, feed in self.matched.inputs.items()}
        batch.update((goal.name, goal(arrays, rows, self.table)) for goal in self.goals)
        return Batch(batch, number, rows, self.table.where, called)
