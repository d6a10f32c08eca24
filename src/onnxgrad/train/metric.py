"""What a metric is: counted batch by batch, exact over the whole data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from onnxgrad.train.losses import Target


@dataclass(frozen=True)
class Metric:
    """Base of the metrics: `start` returns a state, `add` counts a batch into it, `result` ends it.

    `larger` says which direction is better, for early stopping and the best checkpoint; `output` which
    output is judged, by default the first that has a loss.
    """

    name: str
    larger: bool = True
    output: str = ""
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


def class_scores(prediction: np.ndarray, target: np.ndarray, spec: Target) -> tuple:
    """Return scores [n, C] and labels [n], without ignored ones."""
    scores = np.moveaxis(prediction, spec.axis, -1).reshape(-1, prediction.shape[spec.axis])
    labels = (target.argmax(spec.axis) if spec.kind == "shares" else target).reshape(-1)
    if spec.ignore is not None:
        used = labels != spec.ignore
        scores, labels = scores[used], labels[used]
    return scores, labels
