"""Optimizers: settings, and one native call that updates every parameter in place."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from onnxgrad import _native
from onnxgrad.train.step.buffers import Segment


@dataclass(frozen=True)
class Incoming:
    """What happens to a gradient before it is used: times `scale`, then into ±`limit` (0: none)."""

    scale: float = 1.0
    limit: float = 0.0


@dataclass(frozen=True)
class Optimizer:
    """Base of the optimizers. `state` names the buffers that it keeps per parameter."""

    lr: float
    state: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        _expect(self, "lr", self.lr >= 0, "a number >= 0")

    def kinds(self) -> tuple[str, ...]:
        """Return the names of the state that these settings need."""
        return self.state

    def update(self, segment: Segment, lr: float, step: int, incoming: Incoming) -> None:
        """Update `segment` in place for optimizer step `step`, counted from 1."""
        raise NotImplementedError


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent, as torch.optim.SGD.

    >>> SGD(lr=0.1, momentum=0.9).kinds()
    ('momentum_buffer',)
    """

    lr: float = 1e-2
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    state: ClassVar[tuple[str, ...]] = ("momentum_buffer",)

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect(self, "momentum", self.momentum >= 0, "a number >= 0")
        _expect(self, "weight_decay", self.weight_decay >= 0, "a number >= 0")
        plain = self.momentum > 0 and self.dampening == 0
        _expect(self, "nesterov", not self.nesterov or plain, "momentum > 0 and dampening = 0")

    def kinds(self) -> tuple[str, ...]:
        return self.state if self.momentum else ()

    def update(self, segment: Segment, lr: float, step: int, incoming: Incoming) -> None:
        buffers = [segment.state["momentum_buffer"]] if self.momentum else []
        _native.sgd_step(
            [segment.p], [segment.g], buffers, lr=lr, momentum=self.momentum,
            dampening=self.dampening, decay=self.weight_decay, nesterov=self.nesterov,
            first=step == 1, scale=incoming.scale, limit=incoming.limit,
        )  # fmt: skip


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam, as torch.optim.Adam: weight decay is added to the gradient."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    state: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq")
    decoupled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "betas", tuple(self.betas))
        inside = len(self.betas) == 2 and all(0 <= b < 1 for b in self.betas)
        _expect(self, "betas", inside, "two numbers in [0, 1)")
        _expect(self, "eps", self.eps >= 0, "a number >= 0")
        _expect(self, "weight_decay", self.weight_decay >= 0, "a number >= 0")

    def update(self, segment: Segment, lr: float, step: int, incoming: Incoming) -> None:
        _native.adam_step(
            [segment.p], [segment.g], [segment.state["exp_avg"]], [segment.state["exp_avg_sq"]],
            lr=lr, beta1=self.betas[0], beta2=self.betas[1], epsilon=self.eps,
            decay=self.weight_decay, step=step, decoupled=self.decoupled,
            scale=incoming.scale, limit=incoming.limit,
        )  # fmt: skip


@dataclass(frozen=True)
class AdamW(Adam):
    """AdamW, as torch.optim.AdamW: weight decay shrinks the weights themselves."""

    weight_decay: float = 1e-2
    decoupled: ClassVar[bool] = True


NAMES: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}


def resolve(optimizer: str | Optimizer, lr: float | None, **settings: Any) -> Optimizer:
    """Return the optimizer that a name or an object means, with `lr` in place of its own.

    >>> resolve("adamw", 3e-4)
    AdamW(lr=0.0003, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01)
    """
    if isinstance(optimizer, str):
        if optimizer.lower() not in NAMES:
            raise ValueError(f"optimizer is {optimizer!r}, expected one of {', '.join(NAMES)}")
        optimizer = NAMES[optimizer.lower()]()
    if not isinstance(optimizer, Optimizer):
        raise ValueError(
            f"optimizer is a {type(optimizer).__name__}, expected a name or an optimizer"
        )
    changed = {**settings, **({} if lr is None else {"lr": float(lr)})}
    return override(optimizer, changed)


def override(optimizer: Optimizer, settings: Mapping[str, Any]) -> Optimizer:
    """Return `optimizer` with other settings, such as those of a parameter group."""
    known = [f.name for f in dataclasses.fields(optimizer)]
    for name in settings:
        if name not in known:
            raise ValueError(
                f"{type(optimizer).__name__} has no setting {name!r}; it has {', '.join(known)}"
            )
    return dataclasses.replace(optimizer, **settings)


def _expect(optimizer: Optimizer, name: str, good: bool, expected: str) -> None:
    if not good:
        who, value = type(optimizer).__name__, getattr(optimizer, name)
        raise ValueError(f"{who}: {name} is {value!r}, expected {expected}")
