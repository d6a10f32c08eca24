"""How a trained model answers the rows it is judged by: what it takes for what, how sure it is, where it errs most."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from onnxgrad.data.arrays import Batch
from onnxgrad.data.batches import Batches
from onnxgrad.data.goals import Goal
from onnxgrad.job.prepare import Prepared
from onnxgrad.job.thumbnails import thumbnail
from onnxgrad.model.ending import kind_of_scores, probabilities
from onnxgrad.texts import grouped
from onnxgrad.train.trainer import Trainer

MOST_CLASSES = 100  # of a confusion matrix that one can read
SHOWN = 12  # examples
BINS = 10  # of a reliability diagram
CELLS = 8  # columns of a table that are shown of a row
POINTS = 1000  # of a regression's chart


@dataclass
class Example:
    """A row that was answered wrongly: where it is, what it is, what was said, and what it looks like."""

    row: int
    place: str
    truth: str
    answer: str
    sure: float  # of classes: the probability of the answer; else the error
    picture: str = ""  # an address with the picture in it
    cells: dict[str, str] = field(default_factory=dict)


@dataclass
class Judged:
    """Of classes `confusion` [truth, answer] and `bins` (mean confidence, share right, rows); else `points`."""

    names: list[str] = field(default_factory=list)
    confusion: np.ndarray | None = None
    bins: list[tuple[float, float, int]] = field(default_factory=list)
    points: list[tuple[float, float]] = field(default_factory=list)  # (truth, answer)
    examples: list[Example] = field(default_factory=list)

    @property
    def calibration_error(self) -> float:
        """The mean distance of confidence and share right, each bin by its rows."""
        rows = sum(count for _, _, count in self.bins) or 1
        return sum(count * abs(sure - right) for sure, right, count in self.bins) / rows


def judge(trainer: Trainer, held: Batches, prepared: Prepared) -> Judged | None:
    """Look at every row once; None where a row has no single target."""
    goal = next((g for g in getattr(held, "goals", ()) if isinstance(g, Goal)), None)
    if goal is None:
        return None
    yes_no = prepared.loss in ("bce", "bce_probabilities")
    judging = _Classes(prepared) if goal.labels or yes_no else _Numbers(prepared)
    for batch in held.epoch(0):
        scores = output_of(trainer, batch, held.batch_size, prepared.output.name)
        if not judging.add(batch, batch.arrays[goal.name], scores):
            return None
    return judging.result(held, goal)


class _Worst:
    """The rows that are most wrong, with their inputs; the worst are kept, however many there are."""

    def __init__(self, inputs: list[str]):
        self.inputs, self.heap = inputs, []

    def offer(
        self, batch: Batch, at: int, badness: float, truth: str, answer: str, sure: float
    ) -> None:
        row = int(batch.rows[at]) if batch.rows is not None else at
        if len(self.heap) == SHOWN and badness <= self.heap[0][0]:
            return
        arrays = (np.asarray(batch.arrays[n]) for n in self.inputs)
        count = len(batch.rows) if batch.rows is not None else None
        rows = [a[at] for a in arrays if a.ndim and count in (None, len(a))]  # a constant has none
        picture = next(filter(None, map(thumbnail, rows)), "")
        example = Example(row, batch.where(at), truth, answer, sure, picture)
        entry = (badness, -row, example)
        (heapq.heappush if len(self.heap) < SHOWN else heapq.heapreplace)(self.heap, entry)

    def examples(self, held: Batches, goal: Goal) -> list[Example]:
        """The worst first, each with the first columns of its row."""
        found = [example for *_, example in sorted(self.heap, key=lambda e: e[:2], reverse=True)]
        table = held.table
        names = [n for n, c in table.columns.items() if not c.shape and n not in goal.columns][
            :CELLS
        ]
        if names and found:
            rows = np.unique([e.row for e in found])
            cells: dict[int, dict[str, str]] = {}
            for part, arrays in table.parts(names, len(rows), chosen=rows):
                for i, row in enumerate(part):
                    cells[int(row)] = {n: _cell(arrays[n][i]) for n in names}
            for example in found:
                example.cells = cells.get(example.row, {})
        return found


def _cell(value: object) -> str:
    return grouped(float(value), 4) if isinstance(value, (float, np.floating)) else str(value)[:60]


class _Classes:
    """Rows with one class each."""

    def __init__(self, prepared: Prepared):
        self.kind = kind_of_scores(prepared.output)
        if prepared.loss == "bce_probabilities":
            self.kind = "probabilities"
        self.names = prepared.matched.classes
        self.counts: np.ndarray | None = None
        self.sums = np.zeros((BINS, 3))  # confidence, right, rows
        self.worst = _Worst(list(prepared.matched.inputs))

    def add(self, batch: Batch, truth: np.ndarray, scores: np.ndarray) -> bool:
        """Count a batch; False where a row has more than one class."""
        labels = self._labels(truth, scores)
        if labels is None:
            return False
        shares = probabilities(scores, self.kind)
        size = shares.shape[1]
        if self.counts is None:
            self.counts = np.zeros((size, size), int)
        used = np.flatnonzero((labels >= 0) & (labels < size))
        labels, shares = labels[used], shares[used]
        answers = shares.argmax(1)
        sure = shares[np.arange(len(used)), answers]
        np.add.at(self.counts, (labels, answers), 1)
        bins = np.clip((sure * BINS).astype(int), 0, BINS - 1)
        np.add.at(self.sums, bins, np.stack([sure, labels == answers, np.ones(len(used))], 1))
        for i in np.flatnonzero(labels != answers):
            truth_name, answer_name = self._name(labels[i]), self._name(answers[i])
            self.worst.offer(
                batch, int(used[i]), float(sure[i]), truth_name, answer_name, float(sure[i])
            )
        return True

    @staticmethod
    def _labels(truth: np.ndarray, scores: np.ndarray) -> np.ndarray | None:
        if scores.size == len(scores) == truth.size:  # yes or no
            return (truth.ravel() > 0.5).astype(int)
        if truth.ndim == 2 and truth.shape == scores.shape and np.allclose(truth.sum(1), 1):
            truth = truth.argmax(1)  # shares of classes
        if truth.ndim != 1 or scores.ndim != 2 or scores.shape[1] > MOST_CLASSES:
            return None
        return truth.astype(int)

    def _name(self, number: int) -> str:
        return self.names[number] if number < len(self.names) else str(number)

    def result(self, held: Batches, goal: Goal) -> Judged:
        bins = [(s / n, r / n, int(n)) for s, r, n in self.sums if n]
        names = [self._name(i) for i in range(len(self.counts))]
        return Judged(names, self.counts, bins, examples=self.worst.examples(held, goal))


class _Numbers:
    """Rows with one number each."""

    def __init__(self, prepared: Prepared):
        self.points: list[tuple[float, float]] = []
        self.worst = _Worst(list(prepared.matched.inputs))

    def add(self, batch: Batch, truth: np.ndarray, scores: np.ndarray) -> bool:
        """Note a batch; False where a row has several numbers."""
        if truth.size != len(truth) or scores.size != len(truth):
            return False
        truth, scores = truth.ravel().astype(float), scores.ravel().astype(float)
        room = POINTS - len(self.points)
        self.points += list(zip(truth[:room].tolist(), scores[:room].tolist(), strict=True))
        for i in np.argsort(-np.abs(truth - scores))[:SHOWN]:
            error = float(scores[i] - truth[i])
            if error and np.isfinite(error):
                answer = grouped(scores[i], 4)
                self.worst.offer(batch, int(i), abs(error), grouped(truth[i], 4), answer, error)
        return True

    def result(self, held: Batches, goal: Goal) -> Judged:
        return Judged(points=self.points, examples=self.worst.examples(held, goal))


def output_of(trainer: Trainer, batch: Batch, size: int, name: str) -> np.ndarray:
    """What the model says to a batch, by one of its outputs."""
    inputs = {n: batch.arrays[n] for n in trainer.input_names}
    found = trainer.predict(inputs, batch_size=size)
    return found[name] if isinstance(found, dict) else found
