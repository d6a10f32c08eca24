"""One training step: a run of the training graph, then the optimizer, both on the same memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from onnxgrad import _native, kernels
from onnxgrad.train.optimizers import Incoming
from onnxgrad.train.parallel import Division
from onnxgrad.train.step.bound_session import BoundSession, keep_layout, session_options
from onnxgrad.train.step.check import Checker, of_input, of_target
from onnxgrad.train.step.clock import Clock
from onnxgrad.train.step.divided_run import DividedRun
from onnxgrad.train.step.not_finite import NotFinite
from onnxgrad.train.step.setup import TrainingPlan


class TrainingStep:
    """Owns the training session and counts the steps."""

    def __init__(
        self,
        plan: TrainingPlan,
        threads: int | None,
        division: Division,
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
        self.plan, self.store, self.division = plan, plan.store, division
        self.clip_norm, self.clip_value, self.accumulate = clip_norm, clip_value, accumulate
        self.steps = 0  # of the optimizer
        self.batches = 0
        self._anchors: list[np.ndarray] = []  # parameters to stay near, by segment
        self._pull = 0.0
        self._waiting = 0  # batches whose gradients are summed up and not yet applied
        self.threads = threads
        self.clock = Clock()
        objective, graph = plan.objective, plan.graph
        specs = [of_input(v) for v in plan.inputs.values()]
        specs += [of_target(t) for t in objective.expected()]
        self.checker = Checker(specs, plan.notes)
        kinds = {o: v.dtype.numpy() for o, v in plan.loss_values().items()}
        self._loss = np.zeros((), next(iter(kinds.values())))
        self._parts = {o: np.zeros((), kinds[o]) for o in graph.parts}
        options = keep_layout(session_options(threads), graph.model.proto)
        self.session = BoundSession(
            graph.model, options, self.bound_inputs(), self._bound_outputs()
        )
        self._divided = DividedRun(plan, division, self.clock) if division.share else None

    def bound_inputs(self) -> dict[str, np.ndarray]:
        """Return the inputs of the training graph that are not part of a batch."""
        return {**self.store.tensors(), **self.plan.settings}

    def _bound_outputs(self) -> dict[str, np.ndarray]:
        graph, store = self.plan.graph, self.store
        outputs = {graph.loss: self._loss}
        outputs.update((name, self._parts[o]) for o, name in graph.parts.items())
        outputs.update((g, store.gradient(n)) for n, g in graph.gradients.items())
        outputs.update((new, store.next_statistics[n]) for n, new in graph.statistics.items())
        return outputs

    def step(
        self,
        arrays: Mapping[str, np.ndarray],
        rates: Sequence[float],
        cuts: Sequence[int] | None = None,
    ) -> dict[str, float]:
        """Run on a checked batch, and apply the gradients when their time has come.

        `cuts` are where its micro-batches begin and end, where a batch is divided. Raises NotFinite, and
        has changed nothing then.
        """
        if self._divided is None:
            logs = self.differentiate(arrays)
        else:
            logs = self._divided.run(self.run, arrays, cuts, self.batches)
        if not math.isfinite(logs["loss"]):
            raise NotFinite("loss")
        norm = None
        if self.accumulate == 1:
            norm = self._update(rates, 1)
        else:
            self._add()
            if self._waiting == self.accumulate:
                norm = self.apply(rates)
        self.store.take_statistics()
        self.batches += 1
        return logs if norm is None else {**logs, "grad_norm": norm}

    def differentiate(self, arrays: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Run on a checked batch: loss, gradients and new statistics lie in their buffers then, not applied."""
        self.plan.set_batch(self.batches)
        return self.run(arrays)

    def run(self, arrays: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Run the training graph; return the losses."""
        with self.clock("forward and backward"):
            self.session.run(arrays)
        return {
            "loss": float(self._loss),
            **{f"{o}_loss": float(v) for o, v in self._parts.items()},
        }

    def stay_near(self, strength: float) -> None:
        """Add strength/2·‖w − w₀‖² to what is minimised, w₀ the parameters as they are now; 0 ends it."""
        if not strength >= 0:
            raise ValueError(f"strength is {strength!r}, expected a number >= 0")
        self._pull = strength
        self._anchors = [s.p.copy() for s in self.store.segments] if strength else []

    def resume(self, steps: int, batches: int) -> None:
        """Continue the count of a checkpoint; gradients that wait belong to the past."""
        self.steps, self.batches, self._waiting = steps, batches, 0
        for segment in self.store.segments:
            segment.clear_total()

    def apply(self, rates: Sequence[float]) -> float | None:
        """Apply the mean of the gradients that were summed up; return its norm, None for nothing."""
        if not self._waiting:
            return None
        for segment in self.store.segments:
            segment.exchange_total()
        try:
            return self._update(rates, self._waiting)
        finally:
            for segment in self.store.segments:
                segment.exchange_total()
                segment.clear_total()
            self._waiting = 0

    def _add(self) -> None:
        with kernels.at_most(self.threads):
            self._norm(1)  # before they join the others, which are good
            for segment in self.store.segments:
                segment.add_to_total()
        self._waiting += 1

    def _norm(self, count: int) -> float:
        """Return the norm of the gradients over `count`; raise NotFinite where they have none."""
        squares = sum(_native.sum_of_squares([s.g]) for s in self.store.segments)
        if not math.isfinite(squares):
            raise NotFinite("gradient")
        return math.sqrt(squares) / count

    def _update(self, rates: Sequence[float], count: int) -> float:
        """Clip and apply the gradients, the sum of `count` batches; return their norm."""
        with self.clock("optimizer"), kernels.at_most(self.threads):
            return self._apply_update(rates, count)

    def _apply_update(self, rates: Sequence[float], count: int) -> float:
        for segment, anchor in zip(self.store.segments, self._anchors, strict=False):
            segment.g += segment.p.dtype.type(self._pull * count) * (segment.p - anchor)
        norm = self._norm(count)
        scale = 1.0 / count
        if self.clip_norm is not None:
            scale *= min(1.0, self.clip_norm / (norm + 1e-6))
        incoming = Incoming(scale, self.clip_value or 0.0)
        self.steps += 1
        for segment in self.store.segments:
            optimizer = self.plan.group_optimizers[segment.group]
            optimizer.update(segment, rates[segment.group], self.steps, incoming)
        return norm
