"""Which columns become which inputs, and how: what matching finds, and batches are made by."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from onnxgrad.data.columns import as_words, days
from onnxgrad.data.forms import ConstantFeed, Forms
from onnxgrad.data.ragged import LengthFeed, PaddedFeed
from onnxgrad.notes import Note


@dataclass
class Feed:
    """An input from columns of a table: one as it is, or several side by side."""

    columns: list[str]
    shape: tuple[int, ...] | None  # of a row; None leaves it as it is
    dtype: np.dtype | None  # None leaves it as it is
    dates: frozenset[str] = frozenset()  # columns of dates, which become days since 1970

    def __call__(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        parts = [
            days(arrays[name], f"column '{name}'") if name in self.dates else arrays[name]
            for name in self.columns
        ]
        array = parts[0] if len(parts) == 1 else np.stack(parts, 1)
        if self.dtype == np.dtype(object):
            array = as_words(array)
        array = array if self.dtype is None else array.astype(self.dtype)
        return array if self.shape is None else array.reshape(len(array), *self.shape)


@dataclass
class Matched:
    """How rows of a table become a batch. `classes` are the names of labels, by number.

    `targets` are the columns by the output that they are compared with; "" is the output that one
    loss judges. `forms` says how pictures, sounds and texts became numbers, and `kinds` which of them there are.
    """

    inputs: dict[str, Feed | PaddedFeed | LengthFeed | ConstantFeed]
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    classes: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    forms: Forms = field(default_factory=Forms)
    kinds: set[str] = field(default_factory=set)

    @property
    def target(self) -> str:
        """The first column of the first target; empty where there is none."""
        return next((columns[0] for columns in self.targets.values()), "")

    @property
    def target_columns(self) -> list[str]:
        return list(dict.fromkeys(c for columns in self.targets.values() for c in columns))

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(c for feed in self.inputs.values() for c in feed.columns))
