"""LinearLRScheduler: a learning rate that rises for some steps, then falls to 0."""

from __future__ import annotations

import operator
from typing import SupportsFloat

from onnxgrad.dropin.api.optimizer import Optimizer, progress_of
from onnxgrad.errors import DropInTypeError


class LinearLRScheduler:
    """Sets the rate initial_lr·t/warmup for t < warmup, then initial_lr·(total - t)/(total - warmup).

    t is the number of steps that the optimizer has taken. Making a scheduler sets the rate, and
    `step` sets it again.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        warmup_step_count: int,
        total_step_count: int,
        initial_lr: float,
    ):
        self._progress = progress_of(optimizer)
        self._warmup = _count("warmup_step_count", warmup_step_count)
        self._total = _count("total_step_count", total_step_count)
        self._progress.set_initial_rate(_rate(initial_lr))
        self.step()

    def step(self) -> None:
        """Set the rate for the number of steps taken; call it after each step of the optimizer."""
        progress = self._progress
        progress.set_rate(progress.initial_learning_rate * self._factor(progress.step))

    def _factor(self, t: int) -> float:
        if t < self._warmup:
            return t / max(1, self._warmup)
        return max(0.0, (self._total - t) / max(1, self._total - self._warmup))


def _count(name: str, value: object) -> int:
    try:
        return operator.index(value)  # NumPy's integers are whole numbers, too
    except TypeError:
        raise DropInTypeError(f"{name} is {value!r}, expected a whole number of steps") from None


def _rate(value: object) -> float:
    if not isinstance(value, SupportsFloat):
        raise DropInTypeError(f"initial_lr is {value!r}, expected a number")
    return float(value)
