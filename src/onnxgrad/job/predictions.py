"""What a model says to every row of a table: its outputs, and in words where it knows the names of its classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxgrad.data.batches import Batches
from onnxgrad.data.matched import Matched
from onnxgrad.data.ragged import LengthFeed, PaddedFeed
from onnxgrad.data.table import Table
from onnxgrad.data.texts import TextFeed
from onnxgrad.job.prepare import Prepared
from onnxgrad.model.ending import ending
from onnxgrad.model.guess import guess
from onnxgrad.train.step.check import Checker, of_input


@dataclass
class Predictions:
    """`outputs` by name, one row per row of the data. `names` are those of the rows, such as files.

    `answers` is the class of each row, or the tags of its words with spaces between them; empty where the
    model does not know the names of its classes.
    """

    outputs: dict[str, np.ndarray]
    names: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    title: str = "class"


def predict(
    session: Any,
    model: ir.Model,
    table: Table,
    matched: Matched,
    batch_size: int,
    classes: list[str],
) -> Predictions:
    """Every output for every row; a model with a fixed batch gets its last one filled up."""
    names = [o.name for o in session.get_outputs()]
    size, fixed = Prepared(None, model, table, matched, None, []).batch_size(batch_size)
    check = Checker(of_input(v) for v in model.graph.inputs if v.name in matched.inputs)
    parts: list[list[np.ndarray]] = []
    made, least = Predictions({}, list(table.names)), _least_yes(model)
    for batch in Batches(table, matched, [], size).epoch(0):
        count = len(batch.rows)
        if fixed:
            filled = {n: _filled(a, size, count) for n, a in batch.arrays.items()}
            rows = _filled(batch.rows, size, count)
            batch = type(batch)(filled, batch.number, rows, batch.place)
        found = [
            _first(_as_array(r), count, size if fixed else count)
            for r in session.run(names, check(batch))
        ]
        parts.append(found)
        if classes and found[0].dtype.kind != "U":  # words are answers already
            made.answers += _answers(found[0], least, classes, table, matched, batch.rows[:count])
    made.outputs = {n: _joined([p[i] for p in parts]) for i, n in enumerate(names)}
    if made.answers and made.outputs[names[0]].ndim == 3:
        made.title = "tags"
    return made


def _filled(array: np.ndarray, size: int, count: int) -> np.ndarray:
    """Repeat the last row up to `size` rows; what has no rows stays as it is."""
    if array.ndim == 0 or len(array) != count:
        return array
    return np.concatenate([array, np.repeat(array[-1:], size - count, 0)])


def _as_array(result: Any) -> np.ndarray:
    """A result as an array; of a map for each row, as files of scikit-learn give it, the values."""
    if isinstance(result, list):
        result = [list(row.values()) if isinstance(row, dict) else row for row in result]
    array = np.asarray(result)
    return array.astype(str) if array.dtype == object else array


def _first(result: np.ndarray, count: int, size: int) -> np.ndarray:
    """The rows that were asked for; a result without rows, such as a state, as it is."""
    return result[:count] if result.ndim and len(result) == size else result


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """All batches as one array; where the rows of one are longer than another's, with 0 behind them."""
    if len({p.shape[1:] for p in parts}) == 1:
        return np.concatenate(parts) if parts[0].ndim else np.stack(parts)
    widest = np.max([p.shape[1:] for p in parts], axis=0)
    return np.concatenate([
        np.pad(p, [(0, 0), *((0, int(w) - s) for w, s in zip(widest, p.shape[1:], strict=True))])
        for p in parts
    ])  # fmt: skip


def _answers(
    scores: np.ndarray,
    least: float,
    classes: list[str],
    table: Table,
    matched: Matched,
    rows: np.ndarray,
) -> Iterator[str]:
    """The class of each row of scores [N, C], or of yes and no [N, 1]; the tags of each of [N, T, C] or [N, C, T]."""
    count = len(classes)
    if count == 2 and scores.shape in ((len(rows), 1), (len(rows),)):
        return iter([classes[int(score > least)] for score in scores.ravel()])
    if scores.ndim == 2 and scores.shape[1] == count:
        return iter([classes[i] for i in scores.argmax(1)])
    axis = [i for i in (2, 1) if scores.ndim == 3 and scores.shape[i] == count]
    if not axis:
        return iter(())
    chosen = scores.argmax(axis[0])
    return (
        " ".join(classes[row[at]] for at in places)
        for row, places in zip(chosen, _places(table, matched, rows, chosen.shape[1]), strict=True)
    )


def _least_yes(model: ir.Model) -> float:
    """Where yes begins in a first output of yes and no: 0.5 for probabilities, 0 for logits."""
    end = ending(model.graph.outputs[0])
    sigmoid = end is not None and end.node.op_type == "Sigmoid"
    return 0.5 if sigmoid or guess(model).loss == "bce_probabilities" else 0.0


def _places(table: Table, matched: Matched, rows: np.ndarray, width: int) -> list[list[int]]:
    """Where the answers of each row stand: at the first token of every word, or at every token."""
    for feed in matched.inputs.values():
        if isinstance(feed, TextFeed):
            tokens = feed.texts.rows({n: table.arrays[n][rows] for n in feed.columns})
            return [
                [
                    i
                    for i, w in enumerate(t.words)
                    if w is not None and (i == 0 or t.words[i - 1] != w)
                ]
                for t in tokens
            ]
        if isinstance(feed, (PaddedFeed, LengthFeed)):
            return [list(range(len(row))) for row in table.arrays[feed.columns[0]][rows]]
    return [list(range(width))] * len(rows)
