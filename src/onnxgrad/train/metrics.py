"""Metrics: counted batch by batch, exact over the whole data."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onnxgrad.train.losses import Target


@dataclass(frozen=True)
class Metric:
    """Base of the metrics: `start` returns a state, `add` counts a batch into it, `result` ends it.

    `larger` says which direction is better, for early stopping and the best checkpoint.
    """

    name: str
    larger: bool = True
    counts: ClassVar[bool] = False  # right answers, which numbers do not have

    def start(self) -> dict[str, Any]:
        """Return the state before the first batch."""
        return {}

    def add(self, state: dict, prediction: np.ndarray, target: np.ndarray, spec: Target) -> None:
        """Count one batch."""
        raise NotImplementedError

    def result(self, state: dict, logs: dict[str, float]) -> float:
        """Return the value; `logs` has the losses."""
        raise NotImplementedError


def _scores(prediction: np.ndarray, target: np.ndarray, spec: Target) -> tuple:
    """Return scores [n, C] and labels [n], without ignored ones."""
    scores = np.moveaxis(prediction, spec.axis, -1).reshape(-1, prediction.shape[spec.axis])
    labels = target.reshape(-1)
    if spec.ignore is not None:
        used = labels != spec.ignore
        scores, labels = scores[used], labels[used]
    return scores, labels


# Where yes begins: 0.5 for probabilities, 0 for logits. Which they are is known when all batches were seen.
THRESHOLDS = {"probabilities": 0.5, "logits": 0.0}


def _answers(prediction: np.ndarray, target: np.ndarray) -> dict[str, tuple]:
    """Return the answers 0 or 1 under both readings of the numbers, each with the true ones."""
    truth = (target > 0.5).astype(np.int64).reshape(-1)
    flat = prediction.reshape(-1)
    return {n: ((flat > least).astype(np.int64), truth) for n, least in THRESHOLDS.items()}


def _reading(state: dict, prediction: np.ndarray) -> None:
    """Take note of whether every number so far could be a probability."""
    if prediction.size and not (prediction.min() >= 0 and prediction.max() <= 1):
        state["reading"] = "logits"


@dataclass(frozen=True)
class Accuracy(Metric):
    """The share of right answers: the largest score, or one of the `k` largest."""

    name: str = "accuracy"
    k: int = 1
    counts: ClassVar[bool] = True

    def start(self) -> dict[str, Any]:
        return {"right": dict.fromkeys(THRESHOLDS, 0), "all": 0, "reading": "probabilities"}

    def add(self, state: dict, prediction: np.ndarray, target: np.ndarray, spec: Target) -> None:
        if spec.axis is None:
            for reading, (chosen, labels) in _answers(prediction, target).items():
                state["right"][reading] += int((chosen == labels).sum())
            _reading(state, prediction)
            state["all"] += target.size
            return
        scores, labels = _scores(prediction, target, spec)
        if self.k == 1:
            right = scores.argmax(axis=1) == labels
        else:
            own = np.take_along_axis(scores, labels[:, None], axis=1)
            right = (scores > own).sum(axis=1) < self.k
        for reading in THRESHOLDS:
            state["right"][reading] += int(right.sum())
        state["all"] += len(labels)

    def result(self, state: dict, logs: dict[str, float]) -> float:
        return state["right"][state["reading"]] / max(state["all"], 1)


@dataclass(frozen=True)
class F1(Metric):
    """2·precision·recall / (precision + recall): of class 1 for 0/1 targets, else the classes' mean."""

    name: str = "f1"
    counts: ClassVar[bool] = True

    def start(self) -> dict[str, Any]:
        return {"tables": {}, "binary": False, "reading": "probabilities"}

    def add(self, state: dict, prediction: np.ndarray, target: np.ndarray, spec: Target) -> None:
        state["binary"] = spec.axis is None
        if state["binary"]:
            _reading(state, prediction)
            for reading, (chosen, labels) in _answers(prediction, target).items():
                self._count(state["tables"], reading, chosen, labels, 2)
            return
        scores, labels = _scores(prediction, target, spec)
        self._count(state["tables"], state["reading"], scores.argmax(1), labels, scores.shape[1])

    def _count(self, tables: dict, reading: str, chosen, labels, classes: int) -> None:
        hits = np.bincount(labels[chosen == labels], minlength=classes)
        counts = [
            hits,
            np.bincount(chosen, minlength=classes),
            np.bincount(labels, minlength=classes),
        ]
        tables[reading] = tables.get(reading, 0) + np.stack(counts, axis=1)

    def result(self, state: dict, logs: dict[str, float]) -> float:
        hits, chosen, labels = state["tables"][state["reading"]].T
        present = chosen + labels > 0
        each = 2 * hits / np.maximum(chosen + labels, 1)
        if state["binary"]:
            return float(each[1])
        return float(each[present].mean()) if present.any() else 0.0


def check(metrics: Iterable[Metric], targets: Iterable[Target]) -> None:
    """Refuse a metric that counts right answers where the loss compares numbers. Raises ValueError."""
    first = next(iter(targets), None)
    if first is None or first.kind != "numbers":
        return
    for metric in metrics:
        if metric.counts:
            raise ValueError(
                f"the metric {metric.name!r} counts right answers, and the loss of output {first.of!r} compares "
                "numbers; use mae or r2, or a loss of classes"
            )


@dataclass(frozen=True)
class MAE(Metric):
    """The mean size of the difference."""

    name: str = "mae"
    larger: bool = False

    def start(self) -> dict[str, Any]:
        return {"sum": 0.0, "all": 0}

    def add(self, state: dict, prediction: np.ndarray, target: np.ndarray, spec: Target) -> None:
        state["sum"] += float(np.abs(prediction.astype(np.float64) - target).sum())
        state["all"] += target.size

    def result(self, state: dict, logs: dict[str, float]) -> float:
        return state["sum"] / max(state["all"], 1)


@dataclass(frozen=True)
class R2(Metric):
    """1 - Σ(y - ŷ)² / Σ(y - mean y)², over all numbers of the target."""

    name: str = "r2"

    def start(self) -> dict[str, Any]:
        return {"residual": 0.0, "sum": 0.0, "squares": 0.0, "all": 0}

    def add(self, state: dict, prediction: np.ndarray, target: np.ndarray, spec: Target) -> None:
        y = target.astype(np.float64)
        state["residual"] += float(((y - prediction) ** 2).sum())
        state["sum"] += float(y.sum())
        state["squares"] += float((y * y).sum())
        state["all"] += y.size

    def result(self, state: dict, logs: dict[str, float]) -> float:
        spread = state["squares"] - state["sum"] ** 2 / max(state["all"], 1)
        return 1 - state["residual"] / spread if spread > 0 else math.nan


@dataclass(frozen=True)
class Perplexity(Metric):
    """e to the loss, for a mean cross entropy."""

    name: str = "perplexity"
    larger: bool = False

    def add(self, state: dict, prediction: np.ndarray, target: np.ndarray, spec: Target) -> None:
        pass

    def result(self, state: dict, logs: dict[str, float]) -> float:
        return math.exp(min(logs["loss"], 700.0))


@dataclass(frozen=True)
class FunctionMetric(Metric):
    """A function of all predictions and all targets."""

    function: Callable[[np.ndarray, np.ndarray], float] = None

    def start(self) -> dict[str, Any]:
        return {"predictions": [], "targets": []}

    def add(self, state: dict, prediction: np.ndarray, target: np.ndarray, spec: Target) -> None:
        state["predictions"].append(prediction)
        state["targets"].append(target)

    def result(self, state: dict, logs: dict[str, float]) -> float:
        return self.function(np.concatenate(state["predictions"]), np.concatenate(state["targets"]))


NAMES: dict[str, Callable[[], Metric]] = {
    "accuracy": Accuracy, "f1": F1, "mae": MAE, "r2": R2, "perplexity": Perplexity,
}  # fmt: skip


def resolve(metrics: Any) -> list[Metric]:
    """Return the metrics that names, functions or objects mean.

    >>> [m.name for m in resolve("accuracy,top5")]
    ['accuracy', 'top5']
    """
    if isinstance(metrics, str):
        metrics = [m.strip() for m in metrics.split(",") if m.strip()]
    elif isinstance(metrics, Metric) or callable(metrics):
        metrics = [metrics]
    return [_resolve(m) for m in metrics]


def _resolve(metric: Any) -> Metric:
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str):
        if metric.lower() in NAMES:
            return NAMES[metric.lower()]()
        top = re.fullmatch(r"top[-_]?(\d+)", metric.lower())
        if top and int(top[1]) > 0:
            return Accuracy(name=metric, k=int(top[1]))
        raise ValueError(f"metric is {metric!r}, expected one of {', '.join(NAMES)}, top5")
    if callable(metric):
        return FunctionMetric(name=getattr(metric, "__name__", "metric"), function=metric)
    raise ValueError(f"metric is a {type(metric).__name__}, expected a name or a function")
