"""Which rows to train on and which to validate on: random, by class, by time, by group; and folds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from onnxgrad.data.table import Table
from onnxgrad.errors import ConfigError
from onnxgrad.notes import Note

KINDS = "random, stratified, time, time:COLUMN or group:COLUMN"


@dataclass(frozen=True)
class Rows:
    """Numbers of rows in rising order; None means all, and no validation."""

    train: np.ndarray | None = None
    held: np.ndarray | None = None
    note: Note | None = None


@dataclass(frozen=True)
class Split:
    """How rows are set aside: `--split`, resolved for a table and its target."""

    kind: str
    column: str = ""

    @classmethod
    def parse(cls, text: str) -> Split:
        """What `--split` says."""
        kind, _, column = text.partition(":")
        plain = kind in ("", "random", "stratified", "time") and not column
        if not plain and not (kind in ("time", "group") and column):
            raise ConfigError(f"--split is {text!r}, expected {KINDS}")
        return cls(kind, column)

    def columns(self) -> tuple[str, ...]:
        """The columns that only say which rows belong together; they are not inputs of a model."""
        return (self.column,) if self.column else ()

    def resolved(self, labelled: bool) -> Split:
        """By default stratified where the target is classes, else random."""
        if self.kind == "stratified" and not labelled:
            raise ConfigError("--split stratified needs a target of classes; random needs none")
        return self if self.kind else Split("stratified" if labelled else "random")

    def rows(self, table: Table, target: str, share: float, seed: int) -> Rows:
        """Set a share of the rows aside. Raises ConfigError where that leaves none to train on."""
        if share == 0:
            return Rows()
        if not 0 < share < 1:
            raise ConfigError(f"--val is {share:g}, expected a share from 0 to 1, or a file")
        count = max(1, round(table.rows * share))
        if count >= table.rows:
            raise ConfigError(
                f"--val is {share:g}, which leaves nothing of {table.rows:,} rows to train on; 0 sets none aside"
            )
        held = self._held(table, target, count, np.random.default_rng([seed, 7]))
        if len(held) >= table.rows:
            raise ConfigError(
                f"--split {self.kind}:{self.column} leaves nothing to train on: all rows are of one group"
            )
        train = np.setdiff1d(np.arange(table.rows), held)
        how = self._how(seed)
        text = f"validation: {len(held):,} of {table.rows:,} rows, {how} (--val, --split)"
        return Rows(train, np.sort(held), Note("validation", table.source, text))

    def _how(self, seed: int) -> str:
        named = f" '{self.column}'" if self.column else ""
        return {
            "random": f"drawn by seed {seed}",
            "stratified": f"the same share of each class, drawn by seed {seed}",
            "time": f"the last by column{named}" if self.column else "the last in the file",
            "group": f"whole groups of column{named}, drawn by seed {seed}",
        }[self.kind]

    def _held(self, table: Table, target: str, count: int, rng: np.random.Generator) -> np.ndarray:
        if self.kind == "time":
            return self._order(table)[-count:]
        if self.kind == "group":
            return _whole_groups(self._values(table), count, rng)
        if self.kind == "stratified":
            return _by_class(table.column(target), count, rng)
        return rng.permutation(table.rows)[:count]

    def _values(self, table: Table) -> np.ndarray:
        if self.column not in table.columns:
            known = ", ".join(list(table.columns)[:12])
            raise ConfigError(
                f"--split: {table.source} has no column '{self.column}'; it has {known}"
            )
        table.filled.add(self.column)
        return table.column(self.column)

    def _order(self, table: Table) -> np.ndarray:
        """Rows from the first to the last moment; those of one moment stay in the file's order."""
        if not self.column:
            return np.arange(table.rows)
        return np.argsort(self._values(table), kind="stable")

    # ---- folds -------------------------------------------------------------------------------

    def folds(self, table: Table, target: str, count: int, seed: int) -> Iterator[Rows]:
        """Yield `count` splits: every row is validated on once; by time, on what comes after."""
        if not 2 <= count <= table.rows:
            raise ConfigError(f"--folds is {count}, expected 2 to the {table.rows:,} rows")
        if self.kind == "time":
            parts = np.array_split(self._order(table), count + 1)
            for number in range(1, count + 1):
                train = np.concatenate(parts[:number])
                yield Rows(np.sort(train), np.sort(parts[number]), self._fold_note(number, count))
            return
        owner = self._owner(table, target, count, np.random.default_rng([seed, 13]))
        for number in range(count):
            held = np.flatnonzero(owner == number)
            if not len(held) or len(held) == table.rows:
                raise ConfigError(f"--folds {count}: fewer groups than folds; ask for fewer folds")
            note = self._fold_note(number + 1, count)
            yield Rows(np.flatnonzero(owner != number), held, note)

    def _fold_note(self, number: int, count: int) -> Note:
        text = f"validation: fold {number} of {count}, {self.kind}"
        return Note("validation", f"fold {number}", text)

    def _owner(self, table: Table, target: str, count: int, rng) -> np.ndarray:
        """The fold of each row."""
        owner = np.zeros(table.rows, int)
        if self.kind == "group":
            _, of, sizes = np.unique(self._values(table), return_inverse=True, return_counts=True)
            load = np.zeros(count, int)
            for group in np.argsort(-sizes, kind="stable"):
                fold = int(load.argmin())
                load[fold] += sizes[group]
                owner[of == group] = fold
            return owner
        order = rng.permutation(table.rows)
        if self.kind == "stratified":  # deal the rows out class by class
            labels = table.column(target)[order]
            order = order[np.argsort(labels, kind="stable")]
        owner[order] = np.arange(table.rows) % count
        return owner


def _by_class(labels: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` rows with each class's share, the rest by largest remainder; none takes a class's last row."""
    _, of, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    ideal = sizes * (count / len(labels))
    take = np.minimum(np.floor(ideal).astype(int), sizes - 1)
    for place in np.argsort(-(ideal - take), kind="stable"):
        if take.sum() < count and take[place] < sizes[place] - 1:
            take[place] += 1
    order = rng.permutation(len(labels))
    order = order[np.argsort(of[order], kind="stable")]  # class by class, shuffled within
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return np.concatenate([order[s : s + n] for s, n in zip(starts, take, strict=True)])


def _whole_groups(values: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Groups in random order until at least `count` rows are together."""
    _, of, sizes = np.unique(values, return_inverse=True, return_counts=True)
    order = rng.permutation(len(sizes))
    enough = int(np.searchsorted(np.cumsum(sizes[order]), count)) + 1
    return np.flatnonzero(np.isin(of, order[:enough]))
