"""What a CheckpointState, a Module and an Optimizer share: the parameters, in one place in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from onnxgrad.dropin.old.checkpoint import Checkpoint, OptimizerGroup, Property
from onnxgrad.errors import DropInError
from onnxgrad.train.step.buffers import Buffers


class State:
    """The parameters of a model, its optimizer's progress, and the user's properties.

    Arrays stand by themselves until a Module gives each its place in the store.
    """

    def __init__(self, checkpoint: Checkpoint):
        self.trainable = list(checkpoint.trainable)
        both = {**checkpoint.trainable, **checkpoint.frozen}
        self.arrays: dict[str, np.ndarray] = {name: both[name] for name in sorted(both)}
        self.nominal = checkpoint.nominal
        self.properties: dict[str, Property] = dict(checkpoint.properties)
        self.saved_optimizer = checkpoint.optimizer  # as it was read, until an Optimizer takes it
        self.optimizer: LiveOptimizer | None = None
        self.store: Buffers | None = None

    def place(self, order: Iterable[str], statistics: Collection[str]) -> Buffers:
        """Give every parameter its place; the second Module of a state uses what the first made."""
        if self.store is None:
            names = set(self.trainable)
            trained = {n: self.arrays[n] for n in order if n in names}
            kept = {n: self.arrays[n] for n in statistics}
            self.store = Buffers(trained, dict.fromkeys(trained, 0), kept)
            self.arrays.update(self.store.tensors())
        for name in statistics:
            self.store.statistics.setdefault(name, self.arrays[name])
            self.store.next_statistics.setdefault(name, self.arrays[name].copy())
        return self.store

    def allocate(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Give the parameters of a nominal checkpoint their shapes; their numbers come later."""
        for name, array in self.arrays.items():
            if name in shapes and self.store is None:
                self.arrays[name] = np.zeros(shapes[name], array.dtype)

    def take_optimizer(self, moments: tuple[str, ...], saved: int) -> LiveOptimizer:
        """Return the optimizer that keeps `moments`: the one that another began, or a new one."""
        if self.optimizer is None or self.optimizer.moments != moments:
            self.optimizer = LiveOptimizer(self, moments, saved)
        return self.optimizer

    def gradient(self, name: str) -> np.ndarray | None:
        """Return the gradient of a parameter: None for a frozen one, and before a Module is made."""
        if self.store is None or name not in self.trainable:
            return None
        return self.store.gradient(name)

    def set(self, name: str, value: np.ndarray) -> None:
        """Copy numbers into a parameter."""
        to = self.arrays[name]
        if not isinstance(value, np.ndarray):
            raise DropInError(
                f"parameter {name!r} is set to a {type(value).__name__}, expected a NumPy array"
            )
        if value.shape != to.shape:
            raise DropInError(
                f"parameter {name!r} is set to shape {list(value.shape)}, expected {list(to.shape)}"
            )
        if value.dtype != to.dtype:
            raise DropInError(f"parameter {name!r} is set to {value.dtype}, expected {to.dtype}")
        to[...] = value

    def checkpoint(self, include_optimizer: bool) -> Checkpoint:
        """Return what is to be saved."""
        trained = set(self.trainable)
        trainable = {n: a for n, a in self.arrays.items() if n in trained}
        frozen = {n: a for n, a in self.arrays.items() if n not in trained}
        group = None
        if include_optimizer:
            live = self.optimizer
            group = self.saved_optimizer if live is None else live.group()
        return Checkpoint(trainable, frozen, self.nominal, group, self.properties)


class LiveOptimizer:
    """The progress of the optimizer of a state; its moments are in the store."""

    def __init__(self, state: State, moments: tuple[str, ...], saved: int):
        self.state, self.moments, self.saved = state, moments, saved
        self.step = 0
        self.initial_learning_rate = self.learning_rate = 1e-3
        store = state.store
        store.add_state(moments)
        if state.saved_optimizer is not None:
            self._resume(state.saved_optimizer)

    def _resume(self, group: OptimizerGroup) -> None:
        self.step = group.step
        self.initial_learning_rate = group.initial_learning_rate
        state = self.state.store.state()
        for parameter in self.state.store.names:
            found = group.moments.get(parameter, {})
            for number, kind in enumerate(self.moments):
                title, to = f"momentum{number}", state[f"{kind}/{parameter}"]
                if title not in found or found[title].shape != to.shape:
                    raise DropInError(
                        f"the checkpoint's optimizer state has no {title} of shape "
                        f"{list(to.shape)} for parameter {parameter!r}; it was saved with "
                        "another optimizer or model: save without the optimizer state, or use "
                        "the optimizer that it was saved with"
                    )
                to[...] = found[title]

    def count_step(self) -> None:
        """Count a step."""
        self.step += 1

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        self.learning_rate = float(rate)

    def set_initial_rate(self, rate: float) -> None:
        """Set the rate that a scheduler begins from."""
        self.initial_learning_rate = float(rate)

    def group(self) -> OptimizerGroup:
        """Return what is to be saved; moments that the old package expects and nobody keeps are 0."""
        store, state, moments = self.state.store, self.state.store.state(), {}
        for parameter in sorted(store.names):
            zeros = np.zeros_like(store.parameter(parameter))
            moments[parameter] = {
                f"momentum{i}": state[f"{self.moments[i]}/{parameter}"] if i < len(self.moments) else zeros
                for i in range(self.saved)
            }  # fmt: skip
        return OptimizerGroup(self.step, self.initial_learning_rate, moments)
