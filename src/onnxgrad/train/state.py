"""TrainState: where training stands, as a value. Trainer, loop and checkpoints meet here, and nowhere else."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Progress:
    """Where a run stands in its data. A checkpoint holds it, and a resumed run begins from it."""

    epoch: int = 0  # complete epochs
    position: int = 0  # batches of the current epoch that are done
    loss_sum: float = 0.0  # of those batches, weighted by rows
    rows: int = 0
    epochs: list[dict[str, float]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)  # what the position counts in

    def count(self, loss: float, rows: int) -> None:
        """Take note of a batch that is done."""
        self.position, self.rows = self.position + 1, self.rows + rows
        self.loss_sum += loss * rows

    def end_epoch(self, logs: dict[str, float]) -> None:
        """Take note of an epoch that is done."""
        self.epochs.append(logs)
        self.epoch, self.position, self.loss_sum, self.rows = self.epoch + 1, 0, 0.0, 0

    def as_dict(self) -> dict[str, Any]:
        """Return this as plain data."""
        return dict(vars(self))


@dataclass
class TrainState:
    """All that a checkpoint holds: what training changed, and what it belongs to.

    `weights` and `optimizer_state` of a Trainer's own state are its buffers, not copies: the state is
    of the moment at which it is read. A state that was read from a checkpoint stands by itself.
    """

    model: str  # digest of the graph without its weights
    seed: int
    optimizer: str
    weights: dict[str, np.ndarray]  # parameters, then running statistics
    optimizer_state: dict[str, np.ndarray]  # as `<kind>/<parameter>`
    step: int = 0  # optimizer steps
    batches: int = 0
    schedule: dict[str, Any] | None = None  # of a schedule that watches a metric
    progress: Progress | None = None  # None where no loop has run
    callbacks: dict[str, Any] = field(default_factory=dict)  # plain data by callback
    callback_tensors: dict[str, np.ndarray] = field(default_factory=dict)  # `<callback>/<name>`
    recipe: dict[str, Any] = field(default_factory=dict)  # how the Trainer was made
    extra: dict[str, Any] = field(default_factory=dict)  # what a caller keeps, as plain data

    def copied(self) -> TrainState:
        """Return this with arrays of its own, to go back to."""
        return dataclasses.replace(
            self,
            weights={n: a.copy() for n, a in self.weights.items()},
            optimizer_state={n: a.copy() for n, a in self.optimizer_state.items()},
        )

    def mismatch(self, own: TrainState) -> str:
        """Say why a trainer whose state is `own` cannot continue from this one; "" where it can."""
        if self.model != own.model:
            return "it is a checkpoint of another model"
        if self.seed != own.seed:
            return f"its seed is {self.seed}, not {own.seed}"
        if self.optimizer != own.optimizer:
            return f"its optimizer is {self.optimizer}, not {own.optimizer}"
        saved, mine = self._tensors(), own._tensors()
        for name in sorted({*saved, *mine}):
            if name not in saved or name not in mine:
                side = "lacks" if name not in saved else "also trains"
                return f"it {side} {name!r}; were `trainable` or settings changed?"
            if saved[name].shape != mine[name].shape or saved[name].dtype != mine[name].dtype:
                return (
                    f"{name!r} is {saved[name].dtype} {list(saved[name].shape)}, "
                    f"expected {mine[name].dtype} {list(mine[name].shape)}"
                )
        return ""

    def _tensors(self) -> dict[str, np.ndarray]:
        return {**self.weights, **{f"optimizer/{n}": a for n, a in self.optimizer_state.items()}}
