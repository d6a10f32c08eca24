"""CheckpointState: parameters, properties and the optimizer's progress, from a file and back."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from onnxgrad.dropin.old import checkpoint
from onnxgrad.dropin.old.state import State
from onnxgrad.errors import DropInError

INT64 = range(-(1 << 63), 1 << 63)


class Parameter:
    """One parameter of a CheckpointState: its numbers, its gradient, whether it is trained."""

    def __init__(self, parameter: str, state: State):
        self._parameter = parameter
        self._state = state

    @property
    def name(self) -> str:
        """The name of the parameter in the model."""
        return self._parameter

    @property
    def data(self) -> np.ndarray:
        """A copy of the numbers. Assign an array to change them."""
        return self._state.arrays[self._parameter].copy()

    @data.setter
    def data(self, value: np.ndarray) -> None:
        self._state.set(self._parameter, value)

    @property
    def grad(self) -> np.ndarray | None:
        """A copy of the gradient; None for a frozen parameter, and before a Module is made."""
        gradient = self._state.gradient(self._parameter)
        return None if gradient is None else gradient.copy()

    @property
    def requires_grad(self) -> bool:
        """Whether the parameter is trained."""
        return self._parameter in self._state.trainable

    def __repr__(self) -> str:
        return f"Parameter(name={self.name}, requires_grad={self.requires_grad})"


class Parameters:
    """The parameters of a CheckpointState by name; iterating gives pairs of name and Parameter."""

    def __init__(self, state: State):
        self._state = state

    def __getitem__(self, name: str) -> Parameter:
        self._find(name)
        if self._state.nominal:
            raise DropInError(
                f"parameter {name!r} is in a nominal checkpoint, which has names and no numbers. "
                "Please load the parameter states first: Module.copy_buffer_to_parameters(buffer, "
                "trainable_only=False)"
            )
        return Parameter(name, self._state)

    def __setitem__(self, name: str, value: np.ndarray) -> None:
        self._find(name)
        if self._state.nominal:
            raise DropInError(
                f"parameter {name!r} is in a nominal checkpoint, which cannot be set one by one. "
                "Please load all the parameter states first: "
                "Module.copy_buffer_to_parameters(buffer, trainable_only=False)"
            )
        self._state.set(name, value)

    def _find(self, name: str) -> None:
        if name not in self:
            raise KeyError(f"Parameter {name} not found.")

    def __contains__(self, name: str) -> bool:
        return name in self._state.arrays

    def __iter__(self) -> Iterator[tuple[str, Parameter]]:
        for name in list(self._state.arrays):
            yield name, self[name]

    def __repr__(self) -> str:
        return f"Parameters({', '.join(self._state.arrays)})"

    def __len__(self) -> int:
        return len(self._state.arrays)


class Properties:
    """Numbers and strings of the user's own that travel with a checkpoint."""

    def __init__(self, state: State):
        self._state = state

    def __getitem__(self, name: str) -> int | float | str:
        if name not in self:
            raise KeyError(f"Property {name} not found.")
        return self._state.properties[name]

    def __setitem__(self, name: str, value: int | float | str) -> None:
        self._state.properties[name] = _stored(name, value)

    def __contains__(self, name: str) -> bool:
        return name in self._state.properties

    def __iter__(self) -> Iterator[tuple[str, int | float | str]]:
        yield from sorted(self._state.properties.items())

    def __repr__(self) -> str:
        return f"Properties({', '.join(sorted(self._state.properties))})"

    def __len__(self) -> int:
        return len(self._state.properties)


def _stored(name: str, value: object) -> int | float | str:
    """Return a property as the file can keep it: an int64, a float32 or a string."""
    if isinstance(value, str):
        return value
    if isinstance(value, (float, np.floating)):
        return float(np.float32(value))
    if isinstance(value, (int, np.integer)) and int(value) in INT64:
        return int(value)
    raise TypeError(f"property {name!r} is {value!r}, expected an int of 64 bits, a float or a str")


class CheckpointState:
    """The state of a training session; made by `CheckpointState.load_checkpoint`."""

    def __init__(self, state: State):
        if not isinstance(state, State):
            raise TypeError(
                f"Invalid argument for CheckpointState received {type(state)}; "
                "make one with CheckpointState.load_checkpoint(path)"
            )
        self._state = state
        self._parameters = Parameters(state)
        self._properties = Properties(state)

    @classmethod
    def load_checkpoint(cls, checkpoint_uri: str | os.PathLike) -> CheckpointState:
        """Return the state in a checkpoint file, complete or nominal, old or new."""
        return cls(State(checkpoint.read(checkpoint_uri)))

    @classmethod
    def save_checkpoint(
        cls,
        state: CheckpointState,
        checkpoint_uri: str | os.PathLike,
        include_optimizer_state: bool = False,
    ) -> None:
        """Write a state to a file, which onnxruntime-training 1.19.2 can read too."""
        checkpoint.write(state._state.checkpoint(include_optimizer_state), checkpoint_uri)

    @property
    def parameters(self) -> Parameters:
        """The parameters by name."""
        return self._parameters

    @property
    def properties(self) -> Properties:
        """The user's properties by name."""
        return self._properties


def state_of(checkpoint_state: CheckpointState) -> State:
    """Return the parameters behind a CheckpointState, which a Module and its Optimizer share."""
    return checkpoint_state._state
