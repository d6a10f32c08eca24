"""Optimizer: updates the parameters of a Module as an optimizer model says."""

from __future__ import annotations

import os

from onnxgrad.dropin.api.module import Module, state_of_module
from onnxgrad.dropin.old.optimizer_model import SAVED, read_optimizer
from onnxgrad.dropin.old.state import LiveOptimizer
from onnxgrad.errors import DropInError


class Optimizer:
    """The optimizer of a Module; `optimizer_uri` is the optimizer model that goes with it."""

    def __init__(self, optimizer_uri: str | os.PathLike, module: Module):
        self._algorithm = read_optimizer(optimizer_uri)
        self._state = state_of_module(module)
        kind = self._algorithm.kind
        self._optimizer = self._state.take_optimizer(self._algorithm.moments, SAVED[kind])

    def step(self) -> None:
        """Update the parameters from the gradients of the last calls of the Module."""
        if self._state.nominal:
            raise DropInError(
                "the optimizer has nothing to update: the checkpoint is nominal. "
                "Please load the model parameters first. Use "
                "Module.copy_buffer_to_parameters(buffer, trainable_only=False)"
            )
        progress = self._optimizer
        progress.count_step()
        self._algorithm.update(self._state.store, progress.learning_rate, progress.step)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate of the next steps."""
        if not isinstance(learning_rate, (int, float)) and not hasattr(learning_rate, "__float__"):
            raise TypeError(f"learning_rate is {learning_rate!r}, expected a number")
        self._optimizer.set_rate(learning_rate)

    def get_learning_rate(self) -> float:
        """Return the learning rate."""
        return self._optimizer.learning_rate


def progress_of(optimizer: Optimizer) -> LiveOptimizer:
    """Return the steps and the rate of an Optimizer, for a scheduler."""
    return optimizer._optimizer
