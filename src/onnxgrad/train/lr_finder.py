"""The learning-rate finder: the loss over a rate that rises from step to step, until it breaks."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxgrad.charts import Chart, Picture
from onnxgrad.data.arrays import Batch, Data
from onnxgrad.errors import DataError, DivergedError
from onnxgrad.texts import grouped

if TYPE_CHECKING:
    from onnxgrad.train.trainer import Trainer

SMOOTHING = 0.9  # of the loss: single batches jump
BREAKS = 4.0  # times the least loss: the rate is too large by far


@dataclass(frozen=True)
class LrCurve:
    """The smoothed loss by learning rate, and what it suggests; a notebook shows it.

    `suggestion` is the rate at which the loss fell fastest, None where it never fell; `limit` that of the
    least loss, beyond which training breaks.
    """

    rates: list[float]
    losses: list[float]
    suggestion: float | None
    limit: float

    def plot(self, path: str | os.PathLike[str] | None = None) -> Picture:
        """Return the curve as a picture, and write it as SVG where `path` says."""
        points = list(zip(self.rates, self.losses, strict=True))
        mark = None if self.suggestion is None else (self.suggestion, f"{self.suggestion:.1e}")
        picture = Picture([Chart("loss by learning rate", {"loss": points}, log_x=True, mark=mark)])
        if path is not None:
            picture.save(path)
        return picture

    def _repr_svg_(self) -> str:
        return str(self.plot())

    def __str__(self) -> str:
        if self.suggestion is None:
            return f"the loss never fell between {self.rates[0]:.1e} and {self.rates[-1]:.1e}"
        least = grouped(min(self.losses), 4)
        return f"lr {self.suggestion:.1e}: the loss falls fastest there, and is least ({least}) at {self.limit:.1e}"


def find(trainer: Trainer, data: Data, low: float, high: float, steps: int) -> LrCurve:
    """Train with rates from low to high, look at the losses; the caller puts the weights back."""
    if not 0 < low < high < math.inf:
        raise ValueError(f"the rates go from {low!r} to {high!r}, expected 0 < low < high")
    if steps < 10:
        raise ValueError(f"steps is {steps!r}, expected at least 10")
    rates: list[float] = []
    losses: list[float] = []
    mean = 0.0
    batches = _endless(data)
    for number in range(steps):
        rate = low * (high / low) ** (number / (steps - 1))
        try:
            loss = _step(trainer, batches, rate)
        except DivergedError:
            break
        mean = SMOOTHING * mean + (1 - SMOOTHING) * loss
        rates.append(rate)
        losses.append(mean / (1 - SMOOTHING ** (number + 1)))
        if losses[-1] > BREAKS * max(min(losses), 1e-12) and number > 10:
            break
    if len(rates) < 3:
        raise DataError(f"the loss is not finite from lr {low:g} on: the rates begin too high")
    return _judged(rates, losses)


def _step(trainer: Trainer, batches: Iterator[Batch], rate: float) -> float:
    """One optimizer step, of as many batches as it takes; the mean of their losses."""
    losses = []
    while True:
        logs = trainer.train_batch(next(batches), rate)
        losses.append(logs["loss"])
        if "grad_norm" in logs:
            return sum(losses) / len(losses)


def _endless(data: Data) -> Iterator[Batch]:
    for epoch in itertools.count():
        found = False
        for batch in data.epoch(epoch):
            found = True
            yield batch
        if not found:
            raise DataError("the data has no batches")


def _judged(rates: list[float], losses: list[float]) -> LrCurve:
    """The steepest fall over a few neighbouring steps, before the least loss."""
    best = min(range(len(losses)), key=losses.__getitem__)
    reach = max(2, len(rates) // 25)
    slopes = {
        i: losses[i + reach] - losses[i - reach]
        for i in range(reach, min(best + 1, len(losses) - reach))
    }
    steepest = min(slopes, key=slopes.__getitem__, default=None)
    falls = steepest is not None and slopes[steepest] < -0.01 * abs(losses[0])
    return LrCurve(rates, losses, rates[steepest] if falls else None, rates[best])
