"""Loss, metrics and predictions by the model in inference form, on the trainer's own weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from onnxgrad.data.arrays import Batch
from onnxgrad.errors import DataError
from onnxgrad.train.step import build
from onnxgrad.train.step.bound_session import BoundSession, session_options
from onnxgrad.train.step.check import Checker, of_input, of_target
from onnxgrad.train.step.setup import TrainingPlan


class Evaluation:
    """Two sessions, made when first used: with the loss, and without targets."""

    def __init__(self, plan: TrainingPlan, threads: int | None):
        self.plan, self.threads = plan, threads
        self._judging: BoundSession | None = None
        self._predicting: BoundSession | None = None
        self.sample: dict[str, np.ndarray] | None = None  # inputs seen last, for the export's check
        inputs = [of_input(v) for v in plan.inputs.values()]
        targets = [of_target(t) for t in plan.objective.expected()]
        self._inputs, self._all = Checker(inputs), Checker([*inputs, *targets], plan.notes)

    def evaluate(self, batches: Iterable[Batch], metrics: list[Any]) -> dict[str, float]:
        """Return the mean loss and every metric over the batches."""
        if self._judging is None:
            self._judging = self._session(with_loss=True)
        objective = self.plan.objective
        totals: dict[str, float] = {}
        rows = 0
        states = [(m, m.start()) for m in metrics]
        for batch in batches:
            arrays = self._all(batch)
            count = self._share(arrays)
            results = self._judging.run(arrays)
            rows += count
            for key, name in self._loss_names.items():
                totals[key] = totals.get(key, 0.0) + float(results[name]) * count
            for metric, state in states if objective.targets else ():
                output = metric.output or next(iter(objective.targets))
                target = objective.targets[output]
                metric.add(state, results[output], arrays[target.name], target)
        if not rows:
            raise DataError("the data to evaluate has no rows")
        logs = {key: value / rows for key, value in totals.items()}
        for metric, state in states:
            logs[metric.name] = float(metric.result(state, logs))
        return logs

    def predict(self, x: Any, batch_size: int) -> Any:
        """Return the outputs for x, batch by batch."""
        arrays = {n: np.asarray(a) for n, a in self.plan.names.join(x).items()}
        rows = max((len(a) for a in arrays.values() if a.ndim), default=1)
        parts = []
        for start in range(0, max(rows, 1), batch_size):
            end = min(start + batch_size, rows)
            cut = {n: a[start:end] if a.ndim else a for n, a in arrays.items()}
            parts.append(self.run(Batch(cut, start // batch_size, np.arange(start, end))))
        joined = {n: np.concatenate([p[n] for p in parts]) for n in parts[0]}
        return joined if len(joined) > 1 else next(iter(joined.values()))

    def run(self, batch: Batch) -> dict[str, np.ndarray]:
        """Return every output for one batch of inputs."""
        if self._predicting is None:
            self._predicting = self._session(with_loss=False)
        arrays = self._inputs(batch)
        self.remember(arrays)
        return self._predicting.run(arrays)

    def remember(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep the inputs of a batch, for the check of an export."""
        self.sample = {n: arrays[n] for n in self.plan.inputs}

    def _share(self, arrays: Mapping[str, np.ndarray]) -> float:
        """How much a batch counts: its rows, or the sum of their weights."""
        self.remember(arrays)
        weights = next(iter(self.plan.objective.extras), None)
        if weights is not None:
            return float(arrays[weights].sum())
        return next((len(a) for a in arrays.values() if a.ndim), 1)

    def _session(self, with_loss: bool) -> BoundSession:
        plan = self.plan
        tensors = plan.store.tensors()
        objective = plan.objective if with_loss else None
        model, loss, parts = build.evaluation_graph(plan.base.clone(), objective, tensors)
        free = list(plan.outputs)
        if with_loss:
            self._loss_names = {"loss": loss, **{f"{o}_loss": n for o, n in parts.items()}}
            free = [*plan.objective.losses, *self._loss_names.values()]
        return BoundSession(
            model, session_options(self.threads), tensors, {}, list(dict.fromkeys(free))
        )
