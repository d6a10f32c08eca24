"""Loss, metrics and predictions by the model in inference form, on the trainer's own weights."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxgrad.data.arrays import Batch, Data
from onnxgrad.errors import DataError
from onnxgrad.train.metric import Metric
from onnxgrad.train.parallel import Group
from onnxgrad.train.step import build
from onnxgrad.train.step.bound_session import BoundSession, session_options
from onnxgrad.train.step.check import Checker, of_input, of_target
from onnxgrad.train.step.setup import TrainingPlan


@dataclass
class Tally:
    """What batches count: their weight, their losses times it, and the state of every metric."""

    number: int
    states: list[dict[str, Any]]
    weight: float = 0.0
    losses: dict[str, float] = field(default_factory=dict)


class Evaluation:
    """Sessions, made when first used: with the loss and what metrics look at, and without targets."""

    def __init__(self, plan: TrainingPlan, threads: int | None, group: Group):
        self.plan, self.threads, self.group = plan, threads, group
        self._judging: dict[bool, BoundSession] = {}  # by whether a metric looks at predictions
        self._predicting: BoundSession | None = None
        self.sample: dict[str, np.ndarray] | None = None  # inputs seen last, for the export's check
        inputs = [of_input(v) for v in plan.inputs.values()]
        targets = [of_target(t) for t in plan.objective.expected()]
        self._inputs, self._all = Checker(inputs), Checker([*inputs, *targets], plan.notes)

    def evaluate(self, batches: Iterable[Batch], metrics: list[Metric]) -> dict[str, float]:
        """Return the mean loss and every metric over the batches, those of all processes in their order."""
        with self.group.together():
            mine = self._tallies(batches, metrics, several=self.group.size > 1)
        every = [t for part in self.group.gather("an evaluation", mine) for t in part]
        totals: dict[str, float] = {}
        states = [m.start() for m in metrics]
        for tally in sorted(every, key=lambda t: t.number):
            for key, value in tally.losses.items():
                totals[key] = totals.get(key, 0.0) + value
            for i, (metric, state) in enumerate(zip(metrics, tally.states, strict=True)):
                states[i] = metric.merged(states[i], state) if self.group.size > 1 else state
        weight = sum(t.weight for t in sorted(every, key=lambda t: t.number))
        if not every:
            raise DataError("the data to evaluate has no rows")
        logs = {key: value / (weight or 1) for key, value in totals.items()}
        for metric, state in zip(metrics, states, strict=True):
            logs[metric.name] = float(metric.result(state, logs))
        return logs

    def _tallies(
        self, batches: Iterable[Batch], metrics: list[Metric], several: bool
    ) -> list[Tally]:
        """What the batches count: one tally for each, or, where nobody else has any, one for all."""
        looks = any(m.looks for m in metrics)
        if looks not in self._judging:
            self._judging[looks] = self._session(with_loss=True, outputs=looks)
        objective = self.plan.objective
        tallies: list[Tally] = []
        for batch in batches:
            arrays = self._all(batch)
            self.remember(arrays)
            count = objective.weight(arrays)
            results = self._judging[looks].run(arrays)
            if several or not tallies:
                tallies.append(Tally(batch.number, [m.start() for m in metrics]))
            tally = tallies[-1]
            tally.weight += count
            for key, name in self._loss_names.items() if count else ():
                tally.losses[key] = tally.losses.get(key, 0.0) + float(results[name]) * count
            states = zip(metrics, tally.states, strict=True)
            for metric, state in states if objective.targets and looks else ():
                output = metric.output or next(iter(objective.targets))
                target = objective.targets[output]
                metric.add(state, results[output], arrays[target.name], target)
        return tallies

    def predict(self, x: Any, batch_size: int) -> Any:
        """Return the outputs for x, batch by batch."""
        arrays = {n: np.asarray(a) for n, a in self.plan.names.join(x).items()}
        lengths = {len(a) for a in arrays.values() if a.ndim}
        rows = max(lengths, default=1)
        if (
            len(lengths) > 1
        ):  # a state of [layers, rows, width], say: what belongs together only the model knows
            batch_size = max(rows, 1)
        parts = []
        for start in range(0, max(rows, 1), batch_size):
            end = min(start + batch_size, rows)
            cut = {n: a[start:end] if a.ndim else a for n, a in arrays.items()}
            parts.append(self.run(Batch(cut, start // batch_size, np.arange(start, end))))
        joined = {n: _joined([p[n] for p in parts]) for n in parts[0]}
        return joined if len(joined) > 1 else next(iter(joined.values()))

    def run(self, batch: Batch) -> dict[str, np.ndarray]:
        """Return every output for one batch of inputs."""
        if self._predicting is None:
            self._predicting = self._session(with_loss=False)
        arrays = self._inputs(batch)
        self.remember(arrays)
        return self._predicting.run(arrays)

    def run_as_written(
        self, batch: Batch, tensors: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """As `run`, without optimisers, and with `tensors` in the place of the trainer's own of these names."""
        own = self.plan.store.tensors()
        same = {n: a for n, a in tensors.items() if n in own and a.shape == own[n].shape}
        tensors = {**own, **same}
        session = self._session(with_loss=False, tensors=tensors, optimised=False)
        return session.run(self._inputs(batch))

    def remember(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep the inputs of a batch, for the check of an export."""
        self.sample = {n: arrays[n] for n in self.plan.inputs}

    def _session(
        self,
        with_loss: bool,
        outputs: bool = True,
        tensors: Mapping[str, np.ndarray] | None = None,
        optimised: bool = True,
    ) -> BoundSession:
        plan = self.plan
        tensors = plan.store.tensors() if tensors is None else tensors
        objective = plan.objective if with_loss else None
        model, loss, parts = build.evaluation_graph(
            plan.base.clone(), objective, tensors, outputs=outputs
        )
        free = list(plan.outputs)
        if with_loss:
            self._loss_names = {"loss": loss, **{f"{o}_loss": n for o, n in parts.items()}}
            free = [*(plan.objective.losses if outputs else ()), *self._loss_names.values()]
        options = session_options(self.threads, optimised)
        return BoundSession(model, options, tensors, {}, list(dict.fromkeys(free)))


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """The rows of all batches; of one batch what the run gave. A number without an axis is a row."""
    return parts[0] if len(parts) == 1 else np.concatenate([np.atleast_1d(p) for p in parts])


def dealt(data: Data, group: Group) -> Iterator[Batch]:
    """The batches that this process looks at: neighbours where their number is known, else each in turn."""
    if group.size == 1:
        return data.epoch(0)
    try:
        count = len(data)
    except TypeError:
        return (b for b in data.epoch(0) if b.number % group.size == group.rank)
    first, last = (count * (group.rank + i) // group.size for i in range(2))
    return itertools.islice(data.epoch(0, first), last - first)
