"""Loss, metrics and predictions by the model in inference form, on the trainer's own weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxgrad.data.arrays import Batch
from onnxgrad.errors import DataError
from onnxgrad.train.step import build
from onnxgrad.train.step.check import Checker, of_input, of_target
from onnxgrad.train.step.runner import Runner, session_options
from onnxgrad.train.step.setup import Setup


class Evaluation:
    """Two sessions, made when first used: with the loss, and without targets."""

    def __init__(self, setup: Setup, threads: int | None):
        self.setup, self.threads = setup, threads
        self._judge: Runner | None = None
        self._predict: Runner | None = None
        self.sample: dict[str, np.ndarray] | None = None  # inputs seen last, for the export's check
        inputs = [of_input(v) for v in setup.inputs.values()]
        targets = [of_target(t) for t in setup.objective.targets.values()]
        self._inputs, self._all = Checker(inputs), Checker([*inputs, *targets])

    def evaluate(self, data: Any, metrics: list[Any]) -> dict[str, float]:
        """Return the mean loss and every metric over the data."""
        if self._judge is None:
            self._judge = self._runner(with_loss=True)
        objective = self.setup.objective
        totals: dict[str, float] = {}
        rows = 0
        states = [(m, m.start()) for m in metrics]
        for batch in data.epoch(0):
            arrays = self._all(batch)
            count = self._rows(arrays)
            results = self._judge.run(arrays)
            rows += count
            for key, name in self._loss_names.items():
                totals[key] = totals.get(key, 0.0) + float(results[name]) * count
            for output, target in objective.targets.items():
                for metric, state in states:
                    metric.add(state, results[output], arrays[target.name], target)
                break  # metrics are of the first output that has a loss
        if not rows:
            raise DataError("the data to evaluate has no rows")
        logs = {key: value / rows for key, value in totals.items()}
        for metric, state in states:
            logs[metric.name] = float(metric.result(state, logs))
        return logs

    def predict(self, x: Any, batch_size: int) -> Any:
        """Return the outputs for x, batch by batch."""
        arrays = {n: np.asarray(a) for n, a in self.setup.names.join(x).items()}
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
        if self._predict is None:
            self._predict = self._runner(with_loss=False)
        arrays = self._inputs(batch)
        self.sample = arrays
        return self._predict.run(arrays)

    def _rows(self, arrays: Mapping[str, np.ndarray]) -> int:
        self.sample = {n: arrays[n] for n in self.setup.inputs}
        return next((len(a) for a in arrays.values() if a.ndim), 1)

    def _runner(self, with_loss: bool) -> Runner:
        setup = self.setup
        tensors = setup.store.tensors()
        objective = setup.objective if with_loss else None
        model, loss, parts = build.evaluation_graph(setup.base.clone(), objective, tensors)
        free = list(setup.outputs)
        if with_loss:
            self._loss_names = {"loss": loss, **{f"{o}_loss": n for o, n in parts.items()}}
            free = [*setup.objective.losses, *self._loss_names.values()]
        return Runner(model, session_options(self.threads), tensors, {}, list(dict.fromkeys(free)))
