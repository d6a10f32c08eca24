"""One training step: a run of the training graph, then the optimizer, both on the same memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from onnxgrad import _native
from onnxgrad.train.optimizers import Incoming
from onnxgrad.train.step.check import Checker, of_input, of_target
from onnxgrad.train.step.clock import Clock
from onnxgrad.train.step.runner import Runner, session_options
from onnxgrad.train.step.setup import Setup


class Stepper:
    """Owns the training session and counts the steps."""

    def __init__(
        self,
        setup: Setup,
        threads: int | None,
        *,
        clip_norm: float | None,
        clip_value: float | None,
        accumulate: int,
    ):
        for name, value in (("clip_norm", clip_norm), ("clip_value", clip_value)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value!r}, expected a number > 0")
        if accumulate < 1:
            raise ValueError(f"accumulate is {accumulate!r}, expected at least 1")
        self.setup, self.store = setup, setup.store
        self.clip_norm, self.clip_value, self.accumulate = clip_norm, clip_value, accumulate
        self.steps = 0  # of the optimizer
        self.batches = 0
        self._waiting = 0  # batches whose gradients are summed up and not yet applied
        self.threads = threads
        self.clock = Clock()
        objective, graph = setup.objective, setup.graph
        specs = [of_input(v) for v in setup.inputs.values()]
        specs += [of_target(t) for t in objective.targets.values()]
        self.checker = Checker(specs)
        kinds = {o: v.dtype.numpy() for o, v in setup.loss_values().items()}
        self._loss = np.zeros((), next(iter(kinds.values())))
        self._parts = {o: np.zeros((), kinds[o]) for o in graph.parts}
        self.runner = Runner(
            graph.model, session_options(threads), self.bound_inputs(), self._bound_outputs()
        )

    def bound_inputs(self) -> dict[str, np.ndarray]:
        """Return the inputs of the training graph that are no part of a batch."""
        return {**self.store.tensors(), **self.setup.settings}

    def _bound_outputs(self) -> dict[str, np.ndarray]:
        graph, store = self.setup.graph, self.store
        outputs = {graph.loss: self._loss}
        outputs.update((name, self._parts[o]) for o, name in graph.parts.items())
        outputs.update((g, store.gradient(n)) for n, g in graph.gradients.items())
        outputs.update((new, store.next_statistics[n]) for n, new in graph.statistics.items())
        return outputs

    def step(self, arrays: Mapping[str, np.ndarray], rates: Sequence[float]) -> dict[str, float]:
        """Run on a checked batch, and apply the gradients when their time has come.

        The result has "bad" with the name of what is not finite; nothing was changed then.
        """
        self.setup.key[1] = self.batches
        with self.clock("forward and backward"):
            self.runner.run(arrays)
        logs = {"loss": float(self._loss)}
        logs.update((f"{o}_loss", float(v)) for o, v in self._parts.items())
        if not math.isfinite(logs["loss"]):
            return {**logs, "bad": "loss"}
        norm = None
        if self.accumulate == 1:
            norm = self._update(rates, 1)
        else:
            if not math.isfinite(self._norm(1)):
                return {**logs, "bad": "gradient"}
            self._add()
            if self._waiting == self.accumulate:
                norm = self.apply(rates)
        if norm is not None and not math.isfinite(norm):
            return {**logs, "bad": "gradient"}
        self.store.take_statistics()
        self.batches += 1
        return logs if norm is None else {**logs, "grad_norm": norm}

    def resume(self, steps: int, batches: int) -> None:
        """Continue the count of a checkpoint; gradients that wait belong to the past."""
        self.steps, self.batches, self._waiting = steps, batches, 0
        for segment in self.store.segments:
            if segment.total is not None:
                segment.total[...] = 0

    def apply(self, rates: Sequence[float]) -> float | None:
        """Apply the mean of the gradients that were summed up; return its norm, None for nothing."""
        if not self._waiting:
            return None
        for segment in self.store.segments:
            segment.g, segment.total = segment.total, segment.g
        try:
            return self._update(rates, self._waiting)
        finally:
            for segment in self.store.segments:
                segment.g, segment.total = segment.total, segment.g
                segment.total[...] = 0
            self._waiting = 0

    def _add(self) -> None:
        for segment in self.store.segments:
            if segment.total is None:
                segment.total = np.zeros_like(segment.g)
            _native.add_to([segment.total], [segment.g])
        self._waiting += 1

    def _norm(self, count: int) -> float:
        squares = sum(_native.sum_of_squares([s.g]) for s in self.store.segments)
        return math.sqrt(squares) / count

    def _update(self, rates: Sequence[float], count: int) -> float:
        """Clip and apply the gradients, the sum of `count` batches; return their norm."""
        with self.clock("optimizer"):
            return self._apply_update(rates, count)

    def _apply_update(self, rates: Sequence[float], count: int) -> float:
        norm = self._norm(count)
        if not math.isfinite(norm):
            return norm
        scale = 1.0 / count
        if self.clip_norm is not None:
            scale *= min(1.0, self.clip_norm / (norm + 1e-6))
        incoming = Incoming(scale, self.clip_value or 0.0)
        self.steps += 1
        for segment in self.store.segments:
            optimizer = self.setup.group_optimizers[segment.group]
            optimizer.update(segment, rates[segment.group], self.steps, incoming)
        return norm
