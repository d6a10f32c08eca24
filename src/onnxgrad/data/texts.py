"""Columns of text as the tokens that a model takes: sentences, pairs of them, or words with a tag each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxgrad.data.goals import Goal
from onnxgrad.data.ragged import IGNORED, PaddedFeed, Ragged, by_length, padded, role_of, width_of
from onnxgrad.data.table import Table
from onnxgrad.data.tokenizer import LONGEST, Tokenizer
from onnxgrad.errors import DataError

LENGTH = 512  # tokens of a text, where neither a flag, the model nor its tokenizer says so
USUAL = ("text", "sentence", "tokens", "words")


@dataclass(frozen=True)
class TextForm:
    """tokenizer: its file. length: tokens of a text at most. columns: one of text, or two that are a pair."""

    tokenizer: str = ""
    length: int | None = None
    columns: tuple[str, ...] = ()

    def checked(self) -> TextForm:
        """Return the form. Raises ValueError for a length that no text has: models of strangers say it."""
        if self.length is not None and not 1 <= self.length <= LONGEST:
            raise ValueError(f"length is {self.length!r:.60}, expected 1 to {LONGEST:,}")
        return self

    def __str__(self) -> str:
        named = " and ".join(f"'{c}'" for c in self.columns)
        how = "columns {} become" if len(self.columns) > 1 else "column {} becomes"
        return f"{how.format(named)} tokens by {self.tokenizer}, at most {self.length} of a row"


class Texts:
    """Text as tokens; what was tokenised once is kept."""

    def __init__(self, tokenizer: Tokenizer, columns: list[str], length: int, fixed: int | None):
        self.tokenizer, self.columns, self.fixed = tokenizer, columns, fixed
        self.length = length if fixed is None else min(length, fixed)
        self._known: dict = {}

    def rows(self, arrays: dict[str, np.ndarray]) -> list:
        """The tokens of every row."""
        columns = [arrays[name] for name in self.columns]
        if len(columns) == 2:
            keys = [(str(a), str(b)) for a, b in zip(*columns, strict=True)]
        elif columns[0].dtype == object or columns[0].ndim == 2:  # words
            keys = [tuple(str(word) for word in row) for row in columns[0]]
        else:
            keys = [str(text) for text in columns[0]]
        new = list(dict.fromkeys(key for key in keys if key not in self._known))
        if new:
            split = len(columns) == 1 and isinstance(new[0], tuple)
            made = self.tokenizer.whole([list(k) if split else k for k in new], self.length)
            self._known.update(zip(new, made, strict=True))
        return [self._known[key] for key in keys]

    def width(self, rows: list) -> int:
        return width_of((len(row.ids) for row in rows), self.fixed)


@dataclass
class TextFeed:
    """One input of a model from text: ids, mask, types or positions."""

    columns: list[str]
    texts: Texts
    role: str
    dtype: np.dtype

    def __call__(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        rows = self.texts.rows(arrays)
        width = self.texts.width(rows)
        if self.role == "ids":
            return padded([r.ids for r in rows], width, self.texts.tokenizer.filler, self.dtype)
        if self.role == "types":
            return padded([r.types for r in rows], width, 0, self.dtype)
        return by_length(self.role, [len(r.ids) for r in rows], width, self.dtype)


@dataclass(frozen=True)
class TagGoal(Goal):
    """A label for every word or token of a row, -100 where there is none.

    `texts` makes tokens of the words in the last of `columns`: the first token of a word has its label.
    Without it the labels stand at the places of the tokens themselves, which `fixed` may bound.
    """

    texts: Texts | None = None
    fixed: int | None = None

    def __call__(self, arrays: dict[str, np.ndarray], rows: np.ndarray, table: Table) -> np.ndarray:
        tags = [
            self._one(np.asarray(row), self.columns[0], np.repeat(number, len(row)), table)
            for number, row in zip(rows, arrays[self.columns[0]], strict=True)
        ]
        if self.texts is None:
            width = width_of(map(len, tags), self.fixed)
            self._check_lengths(arrays, tags, rows, table)
            return padded(tags, width, IGNORED, np.dtype(np.int64))
        tokens = self.texts.rows(arrays)
        made = np.full((len(rows), self.texts.width(tokens)), IGNORED, np.int64)
        self._check_lengths(arrays, tags, rows, table)
        for place, row, labels in zip(made, tokens, tags, strict=True):
            before = None
            for at, word in enumerate(row.words):
                if word is not None and word != before:
                    place[at] = labels[word]
                before = word
        return made

    def _check_lengths(self, arrays, tags: list, rows: np.ndarray, table: Table) -> None:
        if len(self.columns) < 2:
            return
        for number, labels, words in zip(rows, tags, arrays[self.columns[1]], strict=True):
            if len(labels) != len(words):
                raise DataError(
                    f"{table.source}, {table.where(int(number))}: '{self.columns[0]}' has {len(labels)} labels, and "
                    f"'{self.columns[1]}' has {len(words)}"
                )


def takes_tokens(wanted: list[ir.Value]) -> bool:
    """Whether the inputs look like a tokenizer's: whole numbers [rows, tokens], ids among them."""
    whole = [v for v in wanted if v.dtype.numpy().kind == "i"]
    ranks = all(v.shape is None or len(v.shape) == 2 for v in wanted)
    masks = all(role_of(v.name) != "ids" for v in wanted if v not in whole)
    return bool(whole) and ranks and masks and sum(role_of(v.name) == "ids" for v in wanted) == 1


def text_columns(table: Table, names: list[str], form: TextForm, named: bool) -> list[str]:
    """The columns of text: those that a flag or the model names, the only one, or two that are all there are.

    `named`: a flag names them, so they must be there.
    """
    missing = [name for name in form.columns if name not in table.columns]
    if missing and named:
        listed = ", ".join(list(table.columns)[:12])
        raise DataError(f"--text: {table.source} has no column '{missing[0]}'; it has {listed}")
    if form.columns and not missing:
        return list(form.columns)
    texts = [n for n in names if table.columns[n].dtype.kind == "U"]
    for usual in USUAL:
        if usual in texts:
            return [usual]
    if len(texts) > 2:
        raise DataError(
            f"{table.source} has {len(texts)} columns of text: {', '.join(texts[:8])}. Say which with --text, one or "
            "two for a pair"
        )
    return texts


def feed_texts(
    wanted: list[ir.Value], columns: list[str], tokenizer: Tokenizer, form: TextForm
) -> dict[str, TextFeed]:
    """Give every input of tokens its part of the columns' text."""
    widths = {
        v.shape[1] for v in wanted if v.shape is not None and isinstance(v.shape[1], int)
    }  # fmt: skip
    fixed = next(iter(widths)) if len(widths) == 1 else None
    texts = Texts(tokenizer, columns, form.length or LENGTH, fixed)
    return {
        v.name: TextFeed(columns, texts, role_of(v.name), np.dtype(v.dtype.numpy())) for v in wanted
    }


def is_ragged(table: Table, name: str) -> bool:
    """Whether the rows of a column differ in length."""
    return isinstance(table.arrays.get(name), Ragged)


def as_tags(goal: Goal, table: Table, inputs: Mapping[str, Any]) -> Goal:
    """The goal of a target with a label for every word or token; any other as it is."""
    column = goal.columns[0]
    if not goal.labels or len(goal.columns) > 1 or len(table.columns[column].shape) != 1:
        return goal
    feeds = [feed for feed in inputs.values() if len(feed.columns) == 1]
    words = next(
        (f for f in feeds if isinstance(f, TextFeed) and table.columns[f.columns[0]].shape), None
    )
    if words is not None:
        columns = (column, words.columns[0])
        return TagGoal(**{**vars(goal), "columns": columns}, texts=words.texts)
    if not is_ragged(table, column):
        return goal
    of = next((f for f in feeds if isinstance(f, PaddedFeed)), None)
    if of is None:
        raise DataError(
            f"{table.source}: the rows of '{column}' differ in length, and those of no input do"
        )
    return TagGoal(**{**vars(goal), "columns": (column, of.columns[0])}, fixed=of.fixed)
