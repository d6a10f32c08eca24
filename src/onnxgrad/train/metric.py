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
    compares: ClassVar[bool] = False  # numbers, which classes do not have
    looks: ClassVar[bool] = True  # at predictions; where no metric does, they are not kept

    def start(self) -> dict[str, Any]:
        """Return the state before the first batch."""
        return {}

    def add(self, state: dict, prediction: np.ndarray, target: np.ndarray, spec: Target) -> None:
        """Count one batch."""
        raise NotImplementedError

    def result(self, state: dict, logs: dict[str, float]) -> float:
        """Return the value; `logs` has the losses."""
        raise NotImplementedError

    def merged(self, state: dict, later: dict) -> dict:
        """Return the state of batches whose first part gave `state` and the rest `later`.

        Numbers are added and lists joined; of texts and flags the first that differs from `start` counts.
        """
        begun = self.start()
        return {
            key: _merged(state.get(key), later.get(key), begun.get(key))
            for key in {**state, **later}
        }


def _merged(first: Any, later: Any, begun: Any) -> Any:
    if first is None or later is None:
        return later if first is None else first
    if isinstance(first, dict):
        start = begun if isinstance(begun, dict) else {}
        return {k: _merged(first.get(k), later.get(k), start.get(k)) for k in {**first, **later}}
    if isinstance(first, (str, bool)):
        return later if first == begun else first
    return first + later


def class_scores(prediction: np.ndarray, target: np.ndarray, spec: Target) -> tuple:
    """Return scores [n, C] and labels [n], without ignored ones."""
    scores = np.moveaxis(prediction, spec.axis, -1).reshape(-1, prediction.shape[spec.axis])
    labels = (target.argmax(spec.axis) if spec.kind == "shares" else target).reshape(-1)
    if spec.ignore is not None:
        used = labels != spec.ignore
        scores, labels = scores[used], labels[used]
    return scores, labels
