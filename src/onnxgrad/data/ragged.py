"""Rows of unequal lengths: lists of tokens, words or frames, filled up when they become a batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from onnxgrad.errors import DataError

STEP = 8  # widths of batches are multiples: a run then sees few different shapes
IGNORED = -100  # a label that no loss counts


class Ragged:
    """A column whose rows differ in their first length: `array[rows]` is an array of arrays."""

    def __init__(self, rows: list[np.ndarray]):
        self._rows = np.empty(len(rows), object)
        self._rows[:] = rows
        self.dtype = np.result_type(*{row.dtype for row in rows if len(row)} or {np.int64})
        self.shape = (len(rows), None, *rows[0].shape[1:])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows) -> np.ndarray:
        return self._rows[rows]

    def flat(self, rows: np.ndarray | None = None) -> np.ndarray:
        """What all rows hold, or some, one after the other."""
        return np.concatenate(list(self._rows if rows is None else self._rows[rows]))


def width_of(lengths: Iterable[int], fixed: int | None) -> int:
    """How wide a batch is: as the model fixes it, or as the longest row, rounded up."""
    return fixed if fixed is not None else -(-max(1, *lengths) // STEP) * STEP


def padded(rows: np.ndarray, width: int, value: float, dtype: np.dtype) -> np.ndarray:
    """[rows, width, …] with `value` behind the end of each row."""
    rest = np.shape(rows[0])[1:] if len(rows) else ()
    made = np.full((len(rows), width, *rest), value, dtype)
    for place, row in zip(made, rows, strict=True):
        place[: len(row)] = row
    return made


@dataclass
class PaddedFeed:
    """An input from a column of unequal rows, 0 behind their ends."""

    columns: list[str]
    dtype: np.dtype
    fixed: int | None = None

    def __call__(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        rows = arrays[self.columns[0]]
        width = width_of(map(len, rows), self.fixed)
        longest = max(rows, key=len)
        if len(longest) > width:
            raise DataError(
                f"column '{self.columns[0]}' has a row of {len(longest)}, and the model takes {width}"
            )
        return padded(rows, width, 0, self.dtype)


@dataclass
class LengthFeed:
    """An input that follows from the lengths of a column's rows: which places are filled, and their numbers."""

    columns: list[str]
    role: str  # mask, types or positions
    dtype: np.dtype
    fixed: int | None = None

    def __call__(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        rows = arrays[self.columns[0]]
        regular = rows.dtype != object
        width = rows.shape[1] if regular else width_of(map(len, rows), self.fixed)
        return by_length(self.role, [len(row) for row in rows], width, self.dtype)


def by_length(role: str, lengths: list[int], width: int, dtype: np.dtype) -> np.ndarray:
    """[rows, width]: 1 where a row has something (mask), its place (positions), or 0 (types)."""
    places = np.broadcast_to(np.arange(width), (len(lengths), width))
    if role == "mask":
        return (places < np.array(lengths)[:, None]).astype(dtype)
    return places.astype(dtype) if role == "positions" else np.zeros(places.shape, dtype)


ROLES = (("mask", "mask"), ("type", "types"), ("segment", "types"), ("position", "positions"))


def role_of(name: str) -> str:
    """What an input of tokens is for, by its name: ids, mask, types or positions."""
    return next((role for part, role in ROLES if part in name.lower()), "ids")
