"""Metrics: counted batch by batch, exact over the whole data."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from onnxgrad.train.losses import Target
from onnxgrad.train.metric import Metric, class_scores
from onnxgrad.train.ranking import AUC, AveragePrecision

# Where yes begins: 0.5 for probabilities, 0 for logits. Which they are a loss says; of the caller's own losses
# it is known when all batches were seen.
THRESHOLDS = {"probabilities": 0.5, "logits": 0.0}


def _answers(prediction: np.ndarray, target: np.ndarray) -> dict[str, tuple]:
    """Return the answers 0 or 1 under both readings of the numbers, each with the true ones."""
    truth = (target > 0.5).astype(np.int64).reshape(-1)
    flat = prediction.reshape(-1)
    return {n: ((flat > least).astype(np.int64), truth) for n, least in THRESHOLDS.items()}


def _reading(state: dict, prediction: np.ndarray, spec: Target) -> None:
    """Take note of what the loss says of its scores, or of whether every number so far could be a probability."""
    if spec.scores:
        state["reading"] = spec.scores
    elif prediction.size and not (prediction.min() >= 0 and prediction.max() <= 1):
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
            _reading(state, prediction, spec)
            state["all"] += target.size
            return
        scores, labels = class_scores(prediction, target, spec)
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
    """precision = hits / chosen, recall = hits / present, f1 = 2·hits / (chosen + present), by class.

    Of class 1 for 0/1 targets, else the classes' mean; `average` "macro" takes the mean always (of several
    0/1 columns, the columns'), and "weighted" the mean by how many of each class there are.
    """

    name: str = "f1"
    of: str = "f1"
    average: str = ""
    counts: ClassVar[bool] = True

    def start(self) -> dict[str, Any]:
        return {"tables": {}, "binary": False, "reading": "probabilities"}

    def add(self, state: dict, prediction: np.ndarray, target: np.ndarray, spec: Target) -> None:
        tables = state["tables"]
        if spec.axis is not None:
            scores, labels = class_scores(prediction, target, spec)
            counts = _counts(scores.argmax(1), labels, scores.shape[1])
            tables[state["reading"]] = tables.get(state["reading"], 0) + counts
            return
        _reading(state, prediction, spec)
        columns = self.average and target.ndim == 2 and target.shape[1] > 1
        state["binary"] = not self.average
        for reading, (chosen, labels) in _answers(prediction, target).items():
            counts = (
                _columns(chosen, labels, target.shape) if columns else _counts(chosen, labels, 2)
            )
            tables[reading] = tables.get(reading, 0) + counts

    def result(self, state: dict, logs: dict[str, float]) -> float:
        hits, chosen, labels = state["tables"][state["reading"]].T
        below = {"precision": chosen, "recall": labels, "f1": (chosen + labels) / 2}[self.of]
        each = hits / np.maximum(below, 0.5)
        if state["binary"]:
            return float(each[1])
        if self.average == "weighted":
            return float((each * labels).sum() / max(labels.sum(), 1))
        present = chosen + labels > 0
        return float(each[present].mean()) if present.any() else 0.0


def _counts(chosen: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """[classes, 3]: right answers, answers, and labels of each class."""
    hits = labels[chosen == labels]
    return np.stack([np.bincount(x, minlength=classes) for x in (hits, chosen, labels)], axis=1)


def _columns(chosen: np.ndarray, labels: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """As `_counts`, of the ones in each column."""
    chosen, labels = chosen.reshape(shape), labels.reshape(shape)
    return np.stack([(chosen * labels).sum(0), chosen.sum(0), labels.sum(0)], axis=1)


@dataclass(frozen=True)
class BalancedAccuracy(F1):
    """The mean of the recalls of the classes that are there."""

    name: str = "balanced_accuracy"
    of: str = "recall"
    average: str = "macro"

    def result(self, state: dict, logs: dict[str, float]) -> float:
        hits, _, labels = state["tables"][state["reading"]].T
        present = labels > 0
        return float((hits[present] / labels[present]).mean()) if present.any() else 0.0


def check(metrics: Iterable[Metric], targets: Mapping[str, Target]) -> None:
    """Refuse a metric that asks another question than the loss. Raises ValueError."""
    for metric in metrics:
        if metric.output and metric.output not in targets:
            known = ", ".join(map(repr, targets))
            raise ValueError(
                f"the metric {metric.name!r} is of output {metric.output!r}, and those with a loss are {known}"
            )
        spec = targets[metric.output] if metric.output else next(iter(targets.values()), None)
        reason = "" if spec is None else _unfit(metric, spec)
        if reason:
            raise ValueError(f"the metric {metric.name!r} {reason}")


def _unfit(metric: Metric, spec: Target) -> str:
    """Why a metric cannot judge what the loss of an output judges; "" where it can."""
    loss = f"the loss of output {spec.of!r}"
    if metric.counts and spec.kind == "numbers":
        return f"counts right answers, and {loss} compares numbers; use mae or r2, or a loss of classes"
    if metric.compares and spec.kind in ("labels", "shares"):
        return (
            f"compares numbers, and {loss} judges classes; use accuracy or f1, or a loss of numbers"
        )
    if metric.compares and spec.scores == "logits":
        return f"compares numbers, and output {spec.of!r} holds logits; use accuracy, f1 or auc"
    if isinstance(metric, Accuracy) and metric.k > 1 and spec.kind == "yes or no":
        return (
            f"looks for the label among several classes, and {loss} judges yes and no; use accuracy"
        )
    if isinstance(metric, Perplexity) and spec.kind == "numbers":
        return f"is e to a cross entropy, and {loss} compares numbers; use mae or r2"
    return ""


@dataclass(frozen=True)
class MAE(Metric):
    """The mean size of the difference."""

    name: str = "mae"
    larger: bool = False
    compares: ClassVar[bool] = True

    def start(self) -> dict[str, Any]:
        return {"sum": 0.0, "all": 0}

    def add(self, state: dict, prediction: np.ndarray, target: np.ndarray, spec: Target) -> None:
        state["sum"] += float(np.abs(prediction.astype(np.float64) - target).sum())
        state["all"] += target.size

    def result(self, state: dict, logs: dict[str, float]) -> float:
        return state["sum"] / max(state["all"], 1)


@dataclass(frozen=True)
class RMSE(MAE):
    """The square root of the mean square of the difference."""

    name: str = "rmse"

    def add(self, state: dict, prediction: np.ndarray, target: np.ndarray, spec: Target) -> None:
        state["sum"] += float(((prediction.astype(np.float64) - target) ** 2).sum())
        state["all"] += target.size

    def result(self, state: dict, logs: dict[str, float]) -> float:
        return math.sqrt(super().result(state, logs))


@dataclass(frozen=True)
class MAPE(MAE):
    """The mean of |y - ŷ| / |y|: 0.1 is a tenth; targets of 0 make it huge, as scikit-learn's."""

    name: str = "mape"

    def add(self, state: dict, prediction: np.ndarray, target: np.ndarray, spec: Target) -> None:
        y = target.astype(np.float64)
        least = np.finfo(np.float64).eps
        state["sum"] += float((np.abs(y - prediction) / np.maximum(np.abs(y), least)).sum())
        state["all"] += y.size


@dataclass(frozen=True)
class R2(Metric):
    """1 - Σ(y - ŷ)² / Σ(y - mean y)², over all numbers of the target."""

    name: str = "r2"
    compares: ClassVar[bool] = True

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
    looks: ClassVar[bool] = False

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
    "accuracy": Accuracy, "balanced_accuracy": BalancedAccuracy, "f1": F1, "mae": MAE, "rmse": RMSE, "mape": MAPE,
    "r2": R2, "perplexity": Perplexity, "auc": AUC, "average_precision": AveragePrecision,
    **{
        f"{of}{f'_{average}' * bool(average)}": functools.partial(
            F1, name=f"{of}{f'_{average}' * bool(average)}", of=of, average=average
        )
        for of in ("precision", "recall", "f1")
        for average in ("", "macro", "weighted")
    },
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
    if isinstance(metric, str) and "=" in metric:
        output, _, name = metric.partition("=")
        found = _resolve(name.strip())
        return replace(found, name=f"{output.strip()}_{found.name}", output=output.strip())
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
