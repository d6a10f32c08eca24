"""A batch in micro-batches, each a run of its own, added up over all processes.

The gradient of a batch is Σ wᵢ·gᵢ / Σ wᵢ over its micro-batches, wᵢ their rows (or the sum of their rows'
weights); losses and new running statistics likewise. Sums are taken in one fixed tree, or by the
communicator's own sum, which is faster and depends on the number of processes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from onnxgrad.train.parallel import Division
from onnxgrad.train.parallel.tree import TreeSum
from onnxgrad.train.step.clock import Clock
from onnxgrad.train.step.not_finite import NotFinite
from onnxgrad.train.step.setup import TrainingPlan

Run = Callable[[Mapping[str, np.ndarray]], dict[str, float]]


class DividedRun:
    """The runs of this process, and the sum of all."""

    def __init__(self, plan: TrainingPlan, division: Division, clock: Clock):
        self.plan, self.division, self.clock = plan, division, clock
        self.share, self.group = division.share, division.group
        statistics = plan.store.next_statistics.values()
        self._statistics = np.zeros(sum(a.size for a in statistics))
        self._trees = [TreeSum(self.group.communicator, self.share.of) for _ in self._buffers()]

    def _buffers(self) -> list[np.ndarray]:
        """What is added up: the gradients, and the new running statistics as one buffer."""
        gradients = [segment.g for segment in self.plan.store.segments]
        return [*gradients, self._statistics] if self._statistics.size else gradients

    def run(
        self, run: Run, arrays: Mapping[str, np.ndarray], cuts: Sequence[int], batch: int
    ) -> dict[str, float]:
        """Run every micro-batch of this process; return the losses of the whole batch.

        Raises NotFinite in all processes where the loss of one is not finite.
        """
        mine = range(self.share.first, self.share.last)
        records = [
            self._one(run, v, {n: a[begin:end] if a.ndim else a for n, a in arrays.items()}, batch)
            for v, (begin, end) in zip(mine, itertools.pairwise(cuts), strict=True)
        ]
        with self.clock("other processes"):
            every = [r for part in self.group.gather("a training step", records) for r in part]
            weight, logs = _weighted(every)
            if not math.isfinite(logs["loss"]):
                for tree in self._trees:
                    tree.forget()
                raise NotFinite("loss")
            self._add_up(weight)
        return logs

    def _one(
        self, run: Run, number: int, arrays: Mapping[str, np.ndarray], batch: int
    ) -> tuple[float, dict[str, float]]:
        """One micro-batch: its weight and its losses; its gradients go into the sums."""
        weight = self.plan.objective.weight(arrays)
        logs: dict[str, float] = {}
        if weight:
            self.plan.set_batch(batch * self.share.of + number)
            logs = run(arrays)
            self._gather_statistics()
        for buffer, tree in zip(self._buffers(), self._trees, strict=True):
            if weight:
                np.multiply(buffer, buffer.dtype.type(weight), out=buffer)
            else:
                buffer[...] = 0
            if self.division.reproducible:
                tree.add(number, buffer)
        return weight, logs

    def _gather_statistics(self) -> None:
        at = 0
        for array in self.plan.store.next_statistics.values():
            self._statistics[at : at + array.size] = array.reshape(-1)
            at += array.size

    def _add_up(self, weight: float) -> None:
        for buffer, tree in zip(self._buffers(), self._trees, strict=True):
            if self.division.reproducible:
                tree.finish(buffer)
            else:
                self.group.communicator.all_reduce(buffer)
            np.divide(buffer, buffer.dtype.type(weight), out=buffer)
        at = 0
        for array in self.plan.store.next_statistics.values():
            array[...] = self._statistics[at : at + array.size].reshape(array.shape)
            at += array.size


def _weighted(records: list[tuple[float, dict[str, float]]]) -> tuple[float, dict[str, float]]:
    """The weight of a batch and its losses, from those of its micro-batches."""
    weight = math.fsum(w for w, _ in records)
    names = dict.fromkeys(name for _, logs in records for name in logs)
    if not weight:
        return weight, {"loss": math.nan}
    return weight, {
        name: sum(w * logs[name] for w, logs in records if w) / weight for name in names
    }
