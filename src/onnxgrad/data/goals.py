"""Columns as what a loss compares with: labels, numbers, weights of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

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
