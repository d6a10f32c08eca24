"""What the columns of a table are: numbers, categories, dates; and their statistics over some rows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxgrad.data.table import Table, is_number
from onnxgrad.errors import DataError

MOST_WORDS = 100  # of a category that was not named as one: each becomes a number of its own
FAR_APART = (
    100.0  # how many times larger one column's numbers are than another's, to be worth a hint
)
SAMPLE = 1 << 16  # rows that a median is taken of
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")


@dataclass(frozen=True)
class ColumnSpec:
    """A column as part of a row of numbers: itself, or a number for each of its words."""

    name: str
    words: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        return len(self.words) or 1


def column_specs(table: Table, names: Iterable[str], categories: Iterable[str]) -> list[ColumnSpec]:
    """Say of each column what it is. Raises DataError for text that is neither words nor dates.

    Text is a category where no cell is a number and there are few different words; `categories`
    are those by name, whatever they hold.
    """
    return [_spec(table, name, name in set(categories)) for name in names]


def _spec(table: Table, name: str, named: bool) -> ColumnSpec:
    if not named and (table.columns[name].dtype.kind != "U" or is_dates(table, name)):
        return ColumnSpec(name)
    table.filled.add(name)
    words = [str(w) for w in np.unique(as_words(np.asarray(table.words(name))))]
    wrong = None if named else next((w for w in words if is_number(w)), None)
    if wrong is not None:
        raise DataError(
            f"{table.source}: column '{name}' holds numbers such as {wrong!r} beside text{_first_word(table, name)}; "
            "correct it, name it with --categories, or leave it out with --ignore"
        )
    if not named and len(words) > MOST_WORDS:
        raise DataError(
            f"{table.source}: column '{name}' holds {len(words):,} different words, too many to guess that it is a "
            "category; leave it out with --ignore, or name it with --categories"
        )
    return ColumnSpec(name, tuple(words))


def _first_word(table: Table, name: str) -> str:
    for row, text in enumerate(table.head(name)):
        if not is_number(str(text)):
            return f" such as {str(text)!r} ({table.where(row)})"
    return ""


def as_words(array: np.ndarray) -> np.ndarray:
    """Cells as text: whole numbers without a point, and nothing for a gap."""
    if array.dtype.kind == "U":
        return array
    if array.dtype.kind != "f":
        return array.astype(str)
    flat = [
        "" if np.isnan(v) else str(int(v)) if v == np.floor(v) else str(v) for v in array.ravel()
    ]
    return np.array(flat).reshape(array.shape)


def is_dates(table: Table, name: str) -> bool:
    """Whether every cell is a date such as 2024-03-01 or 2024-03-01 12:30."""
    texts = [str(t) for t in np.ravel(table.head(name)) if str(t)]
    return bool(texts) and all(_DATE.fullmatch(t) for t in texts)


def days(array: np.ndarray, where: str) -> np.ndarray:
    """Dates as days since 1970-01-01, with a fraction for the time of day; NaN for a gap."""
    try:
        seconds = array.astype("datetime64[ms]")
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error
    numbers = seconds.astype(np.int64) / 86_400_000
    return np.where(np.isnat(seconds), np.nan, numbers)


def fills_missing(value: ir.Value) -> bool:
    """Whether a model puts something in the place of NaN in an input before anything else reads it."""
    uses = list(value.uses())
    return bool(uses) and all(_fills(node, index) for node, index in uses)


def _fills(node: ir.Node, index: int) -> bool:
    if node.op_type in ("IsNaN", "OneHotEncoder"):
        return True
    if node.op_type == "Where":
        asked = node.inputs[0].producer() if node.inputs[0] is not None else None
        return index == 2 and asked is not None and asked.op_type == "IsNaN"
    return node.op_type in ("Concat", "Reshape", "Identity") and fills_missing(node.outputs[0])


@dataclass
class Statistics:
    """Of each number of a row: mean and deviation of those that are there, and their median."""

    mean: np.ndarray
    deviation: np.ndarray
    median: np.ndarray


def statistics(table: Table, feed, rows: np.ndarray | None, each: bool = True) -> Statistics:
    """Go through rows of a table; `feed` makes an array [rows, …] of the columns it names.

    `each`: of every number of a row [rows, numbers] by itself, else of all together.

    Deviations are those of all rows (n, not n - 1), as StandardScaler's; the median is of the first
    65,536 rows.
    """
    count = total = squares = shift = None
    sample: list[np.ndarray] = []
    for _, arrays in table.parts(feed.columns, 4096, chosen=rows):
        array = feed(arrays).astype(np.float64)
        array = array.reshape(len(array), -1) if each else array.reshape(-1, 1)
        there = np.isfinite(array)
        if shift is None:  # sums of squares about a number near the mean keep their digits
            shift = np.nan_to_num(np.nanmean(np.where(there, array, np.nan), axis=0))
            count = total = squares = 0
        moved = np.where(there, array - shift, 0.0)
        count, total = count + there.sum(0), total + moved.sum(0)
        squares = squares + (moved * moved).sum(0)
        if sum(map(len, sample)) < SAMPLE:
            sample.append(array)
    many = np.maximum(count, 1)
    variance = np.maximum(squares / many - (total / many) ** 2, 0)
    joined = np.concatenate(sample)
    median = np.nanmedian(np.where(np.isfinite(joined), joined, np.nan), axis=0)
    return Statistics(shift + total / many, np.sqrt(variance), np.nan_to_num(median))


def far_apart(sizes: np.ndarray) -> tuple[int, int] | None:
    """The places of the smallest and the largest column, where they differ by orders of magnitude."""
    known = np.flatnonzero(sizes > 0)
    if len(known) < 2:
        return None
    low, high = known[sizes[known].argmin()], known[sizes[known].argmax()]
    return (int(low), int(high)) if sizes[high] >= FAR_APART * sizes[low] else None
