"""Metrics of an order: how well scores put the right answers before the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onnxgrad.train.losses import Target
from onnxgrad.train.metric import Metric, class_scores


@dataclass(frozen=True)
class AUC(Metric):
    """The area under the ROC curve: how often a yes has a higher score than a no; a tie counts half.

    Of several classes the mean of each against the rest (by probability), of several 0/1 columns the
    columns' mean; what lacks a yes or a no is left out.
    """

    name: str = "auc"
    counts: ClassVar[bool] = True

    def start(self) -> dict[str, Any]:
        return {"scores": [], "truth": []}

    def add(self, state: dict, prediction: np.ndarray, target: np.ndarray, spec: Target) -> None:
        if spec.axis is None:
            width = prediction.shape[-1] if prediction.ndim > 1 else 1
            state["scores"].append(prediction.reshape(-1, width).astype(np.float64))
            state["truth"].append(target.reshape(-1, width) > 0.5)
            return
        scores, labels = class_scores(prediction.astype(np.float64), target, spec)
        if scores.shape[1] == 2:
            state["scores"].append(scores[:, 1:] - scores[:, :1])
            state["truth"].append(labels[:, None] == 1)
            return
        raised = np.exp(scores - scores.max(1, keepdims=True))
        adds_up = (scores >= 0).all() and np.allclose(scores.sum(1), 1, atol=1e-3)
        state["scores"].append(scores if adds_up else raised / raised.sum(1, keepdims=True))
        state["truth"].append(labels[:, None] == np.arange(scores.shape[1]))

    def result(self, state: dict, logs: dict[str, float]) -> float:
        scores, truth = np.concatenate(state["scores"]), np.concatenate(state["truth"])
        mixed = [c for c in range(truth.shape[1]) if 0 < truth[:, c].sum() < len(truth)]
        if not mixed:
            return float("nan")
        return float(np.mean([self.of_one(scores[:, c], truth[:, c]) for c in mixed]))

    def of_one(self, scores: np.ndarray, truth: np.ndarray) -> float:
        """(Σ ranks of the yes - Y(Y + 1)/2) / (Y·N), tied scores sharing the mean of their ranks."""
        _, place, times = np.unique(scores, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(times) - (times - 1) / 2)[place]
        yes = int(truth.sum())
        return float((ranks[truth].sum() - yes * (yes + 1) / 2) / (yes * (len(truth) - yes)))


@dataclass(frozen=True)
class AveragePrecision(AUC):
    """Σ (R_n - R_{n-1})·P_n over the thresholds from the highest score down, R recall and P precision."""

    name: str = "average_precision"

    def of_one(self, scores: np.ndarray, truth: np.ndarray) -> float:
        order = np.argsort(-scores, kind="stable")
        hits, falling = np.cumsum(truth[order]), scores[order]
        ends = np.append(np.flatnonzero(np.diff(falling)), len(falling) - 1)  # of equal scores
        precision, recall = hits[ends] / (ends + 1), hits[ends] / hits[-1]
        return float((np.diff(recall, prepend=0.0) * precision).sum())
