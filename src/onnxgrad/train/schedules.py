"""Learning rates over the steps of a run.

A schedule maps (base, step) to a rate; steps are optimizer steps, counted from 0. It holds no state,
so a resumed run continues where it was; the exception is `ReduceOnPlateau`, which a checkpoint saves.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Schedule:
    """Base of the schedules."""

    def rate(self, base: float, step: int) -> float:
        """Return the learning rate of a group whose own rate is `base`."""
        raise NotImplementedError

    def bound(self, total: int | None, per_epoch: int | None = None) -> Schedule:
        """Return the schedule for a run of `total` steps, `per_epoch` of them in an epoch.

        None where that is unknown.
        """
        return self

    def end_epoch(self, logs: Mapping[str, float]) -> None:
        """Take note of the numbers of an epoch."""

    def state(self) -> dict[str, Any] | None:
        """Return what a checkpoint must keep; None for a schedule that only counts steps."""
        return None

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""


def _expect(schedule: Schedule, name: str, right: bool, expected: str) -> None:
    if not right:
        value = getattr(schedule, name)
        raise ValueError(f"{type(schedule).__name__}: {name} is {value!r}, expected {expected}")


@dataclass(frozen=True)
class Constant(Schedule):
    """The same rate for ever.

    >>> Constant().rate(0.1, 7)
    0.1
    """

    def rate(self, base: float, step: int) -> float:
        return base


@dataclass(frozen=True)
class _NeedsLength(Schedule):
    """A schedule that needs the length of the run: `total`, or what `fit` knows."""

    total: int | None = None

    def bound(self, total: int | None, per_epoch: int | None = None) -> Schedule:
        if self.total is not None:
            return self
        made = dataclasses.replace(self, total=total)
        made.share(0)
        return made

    def share(self, step: int) -> float:
        """How much of the run lies before a step, 0 to 1. Raises ValueError where nobody knows its length."""
        if self.total is None:
            raise ValueError(
                f"{type(self).__name__} needs the number of steps: give total=, "
                "or train by fit with data of known length or steps_per_epoch="
            )
        return min(step / max(self.total, 1), 1.0)


@dataclass(frozen=True)
class Cosine(_NeedsLength):
    """Half a cosine from the base rate to `floor`, as CosineAnnealingLR(T_max=total).

    >>> [round(Cosine(total=4).rate(1.0, t), 3) for t in range(5)]
    [1.0, 0.854, 0.5, 0.146, 0.0]
    """

    floor: float = 0.0

    def rate(self, base: float, step: int) -> float:
        turn = math.pi * self.share(step)
        return self.floor + (base - self.floor) * (1 + math.cos(turn)) / 2


@dataclass(frozen=True)
class Linear(_NeedsLength):
    """A line from the base rate to `end` times it, as LinearLR(1, end, total).

    >>> [Linear(total=4).rate(1.0, t) for t in range(5)]
    [1.0, 0.75, 0.5, 0.25, 0.0]
    """

    end: float = 0.0

    def rate(self, base: float, step: int) -> float:
        return base * (1 + (self.end - 1) * self.share(step))


@dataclass(frozen=True)
class _CountsEpochs(Schedule):
    """A schedule that counts epochs: `fit` says how many steps one has."""

    per_epoch: int | None = field(default=None, kw_only=True)

    def bound(self, total: int | None, per_epoch: int | None = None) -> Schedule:
        if self.per_epoch is not None:
            return self
        made = dataclasses.replace(self, per_epoch=per_epoch)
        made.epoch(0)
        return made

    def epoch(self, step: int) -> int:
        """Return the number of complete epochs before a step. Raises ValueError where nobody knows how long one is."""
        if self.per_epoch is None:
            raise ValueError(
                f"{type(self).__name__} counts epochs and needs the steps of one: give per_epoch=, "
                "or train by fit with data of known length or steps_per_epoch="
            )
        return step // max(self.per_epoch, 1)


@dataclass(frozen=True)
class Step(_CountsEpochs):
    """Times `gamma` after every `every` epochs, as StepLR stepped once an epoch.

    >>> [Step(every=2, gamma=0.5, per_epoch=1).rate(1.0, t) for t in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    >>> [Step(every=1, gamma=0.5, per_epoch=3).rate(1.0, t) for t in (0, 2, 3, 6)]
    [1.0, 1.0, 0.5, 0.25]
    """

    every: int = 10
    gamma: float = 0.1

    def __post_init__(self) -> None:
        _expect(self, "every", self.every >= 1, "at least 1 epoch")
        _expect(self, "gamma", 0 <= self.gamma < math.inf, "a number >= 0")

    def rate(self, base: float, step: int) -> float:
        return base * self.gamma ** (self.epoch(step) // self.every)


@dataclass(frozen=True)
class Exponential(_CountsEpochs):
    """Times `gamma` after every epoch, as ExponentialLR stepped once an epoch.

    >>> Exponential(gamma=0.5, per_epoch=1).rate(1.0, 3)
    0.125
    """

    gamma: float = 0.95

    def __post_init__(self) -> None:
        _expect(self, "gamma", 0 <= self.gamma < math.inf, "a number >= 0")

    def rate(self, base: float, step: int) -> float:
        return base * self.gamma ** self.epoch(step)


@dataclass(frozen=True)
class Warmup(Schedule):
    """A line from `start` times the base rate up to it over `steps`, then another schedule.

    The other schedule begins when the line ends, as with LinearLR and SequentialLR.

    >>> [Warmup(steps=4, start=0.0).rate(1.0, t) for t in range(6)]
    [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    """

    steps: int = 0
    then: Schedule = Constant()
    start: float = 0.0

    def __post_init__(self) -> None:
        _expect(self, "steps", self.steps >= 0, "at least 0")

    def rate(self, base: float, step: int) -> float:
        if step < self.steps:
            return base * (self.start + (1 - self.start) * step / self.steps)
        return self.then.rate(base, step - self.steps)

    def bound(self, total: int | None, per_epoch: int | None = None) -> Schedule:
        rest = None if total is None else max(total - self.steps, 1)
        return dataclasses.replace(self, then=self.then.bound(rest, per_epoch))

    def end_epoch(self, logs: Mapping[str, float]) -> None:
        self.then.end_epoch(logs)

    def state(self) -> dict[str, Any] | None:
        return self.then.state()

    def load_state(self, state: dict[str, Any]) -> None:
        self.then.load_state(state)


@dataclass
class ReduceOnPlateau(Schedule):
    """Times `factor` when a metric has not improved for more than `patience` epochs.

    As torch's ReduceLROnPlateau with `threshold_mode="rel"`. Counts as a schedule; `fit` shows it the
    metric `monitor` after every epoch.
    """

    monitor: str = "val_loss"
    factor: float = 0.1
    patience: int = 10
    threshold: float = 1e-4
    cooldown: int = 0
    min_lr: float = 0.0
    mode: str = "min"
    scale: float = 1.0
    best: float | None = None
    bad: int = 0
    waiting: int = 0

    def __post_init__(self) -> None:
        _expect(self, "factor", 0 <= self.factor < 1, "at least 0 and below 1")
        _expect(self, "patience", self.patience >= 0, "at least 0 epochs")
        _expect(self, "mode", self.mode in ("min", "max"), "min or max")

    def rate(self, base: float, step: int) -> float:
        """Return the reduced rate, never below `min_lr` (nor above `base`)."""
        return max(base * self.scale, min(self.min_lr, base))

    def end_epoch(self, logs: Mapping[str, float]) -> None:
        if self.monitor not in logs:
            raise ValueError(
                f"ReduceOnPlateau: monitor is {self.monitor!r}, and an epoch has {', '.join(logs)}"
                f"{'; give fit a validation, or name another' * self.monitor.startswith('val_')}"
            )
        self.observe(logs[self.monitor])

    def observe(self, value: float) -> None:
        """Take note of the metric after an epoch."""
        if self.best is None or self._better(value):
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        if self.waiting > 0:
            self.waiting -= 1
            self.bad = 0
        if self.bad > self.patience:
            self.scale *= self.factor
            self.waiting, self.bad = self.cooldown, 0

    def _better(self, value: float) -> bool:
        if self.mode == "min":
            return value < self.best * (1 - self.threshold)
        return value > self.best * (1 + self.threshold)

    def state(self) -> dict[str, Any]:
        return {"scale": self.scale, "best": self.best, "bad": self.bad, "waiting": self.waiting}

    def load_state(self, state: dict[str, Any]) -> None:
        for name in ("scale", "best", "bad", "waiting"):
            setattr(self, name, state[name])


NAMES: dict[str, type] = {
    "constant": Constant, "cosine": Cosine, "linear": Linear, "step": Step,
    "exponential": Exponential, "plateau": ReduceOnPlateau,
}  # fmt: skip


def named(name: str, every: int = 0, factor: float = 0.0, floor: float = 0.0) -> Schedule:
    """Return the schedule of a name with the settings of a command line; 0 leaves each one's own.

    `every` is in epochs: the period of "step", the patience of "plateau". `factor` is what both and
    "exponential" multiply by, `floor` the rate at which "cosine" and "plateau" end.

    >>> named("step", every=5, factor=0.5)
    Step(per_epoch=None, every=5, gamma=0.5)
    """
    kind = NAMES.get(name.lower())
    if kind is None:
        raise ValueError(f"schedule is {name!r}, expected one of {', '.join(NAMES)}")
    words = {
        Step: {"every": every, "gamma": factor},
        Exponential: {"gamma": factor},
        ReduceOnPlateau: {"patience": every, "factor": factor, "min_lr": floor},
        Cosine: {"floor": floor},
    }.get(kind, {})
    given = {"every": every, "factor": factor, "floor": floor}
    taken = {
        "every": ("every", "patience"),
        "factor": ("gamma", "factor"),
        "floor": ("floor", "min_lr"),
    }
    for setting, value in given.items():
        if value and not any(word in words for word in taken[setting]):
            raise ValueError(f"the schedule {name!r} has no {setting}")
    return kind(**{word: value for word, value in words.items() if value})


def resolve(schedule: Any, warmup: int = 0) -> Schedule:
    """Return the schedule that a name or an object means, after `warmup` steps of rising.

    >>> resolve("cosine", warmup=100)
    Warmup(steps=100, then=Cosine(total=None, floor=0.0), start=0.0)
    """
    if schedule is None:
        schedule = Constant()
    elif isinstance(schedule, str):
        if schedule.lower() not in NAMES:
            raise ValueError(f"schedule is {schedule!r}, expected one of {', '.join(NAMES)}")
        schedule = NAMES[schedule.lower()]()
    if not hasattr(schedule, "rate"):
        raise ValueError(f"schedule is a {type(schedule).__name__}, expected a name or a schedule")
    return Warmup(steps=warmup, then=schedule) if warmup else schedule
