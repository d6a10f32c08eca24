"""Parameters, gradients and optimizer state: flat buffers, of which every tensor is a view.

A parameter has one place in memory for its whole life. Sessions read it there, the optimizer writes
it there, and a checkpoint is written from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from onnxgrad import _native

ALIGNMENT = 64  # bytes: a cache line, and the widest register


def aligned_zeros(size: int, dtype: np.dtype) -> np.ndarray:
    """Return a flat array of zeros that begins on a cache line."""
    itemsize = np.dtype(dtype).itemsize
    raw = np.zeros(size + ALIGNMENT // itemsize, dtype)
    start = (-raw.ctypes.data % ALIGNMENT) // itemsize
    return raw[start : start + size]


def _layout(arrays: Mapping[str, np.ndarray], dtype: np.dtype) -> tuple[dict[str, slice], int]:
    """Return where each array lies in a flat buffer, each beginning on a cache line; the length."""
    step, places, at = ALIGNMENT // np.dtype(dtype).itemsize, {}, 0
    for name, array in arrays.items():
        places[name] = slice(at, at + array.size)
        at += -(-array.size // step) * step
    return places, at


@dataclass
class Segment:
    """The parameters of one group and one type: `p` and `g` are flat, `state` as the optimizer asks.

    The gaps between tensors are zero and stay so.
    """

    group: int
    places: dict[str, slice]
    shapes: dict[str, tuple[int, ...]]
    p: np.ndarray
    g: np.ndarray
    state: dict[str, np.ndarray] = field(default_factory=dict)
    total: np.ndarray | None = None  # the sum of gradients, where they are accumulated

    def view(self, flat: np.ndarray, name: str) -> np.ndarray:
        """Return one tensor of a flat buffer."""
        return flat[self.places[name]].reshape(self.shapes[name])

    def make_total(self) -> None:
        """Have a second buffer of gradients, of zeros when it is new."""
        if self.total is None:
            self.total = np.zeros_like(self.g)

    def add_to_total(self) -> None:
        """total += g"""
        self.make_total()
        _native.add_to([self.total], [self.g])

    def exchange_total(self) -> None:
        """Let `g` and `total` change places."""
        self.g, self.total = self.total, self.g

    def clear_total(self) -> None:
        """Forget the gradients that were summed up."""
        if self.total is not None:
            self.total[...] = 0


class Buffers:
    """Every tensor that changes: parameters in `segments`, running statistics in `statistics`."""

    def __init__(
        self,
        parameters: Mapping[str, np.ndarray],
        group_of: Mapping[str, int],
        statistics: Mapping[str, np.ndarray],
        moving: Iterable[str] | None = None,
    ):
        self.segments: list[Segment] = []
        self._segment_of: dict[str, Segment] = {}
        self.names = list(parameters)
        kinds = dict.fromkeys((group_of[n], a.dtype) for n, a in parameters.items())
        for group, dtype in sorted(kinds, key=str):
            mine = {n: a for n, a in parameters.items() if (group_of[n], a.dtype) == (group, dtype)}
            places, size = _layout(mine, dtype)
            shapes = {n: a.shape for n, a in mine.items()}
            p, g = aligned_zeros(size, dtype), aligned_zeros(size, dtype)
            segment = Segment(group, places, shapes, p, g)
            self.segments.append(segment)
            self._segment_of.update(dict.fromkeys(mine, segment))
        for name, array in parameters.items():
            self.parameter(name)[...] = array
        self.statistics = {n: np.array(a) for n, a in statistics.items()}
        # The step writes new statistics beside the old ones, which it still reads; others stay.
        moved = statistics if moving is None else moving
        self.next_statistics = {n: np.array(statistics[n]) for n in moved}

    def parameter(self, name: str) -> np.ndarray:
        """Return the parameter itself, not a copy."""
        segment = self._segment_of[name]
        return segment.view(segment.p, name)

    def gradient(self, name: str) -> np.ndarray:
        """Return the buffer that a step writes the gradient into."""
        segment = self._segment_of[name]
        return segment.view(segment.g, name)

    def tensors(self) -> dict[str, np.ndarray]:
        """Return parameters, then running statistics, by name; the buffers themselves."""
        return {**{n: self.parameter(n) for n in self.names}, **self.statistics}

    def state(self) -> dict[str, np.ndarray]:
        """Return the optimizer's state as `<kind>/<parameter>`; the buffers themselves."""
        return {
            f"{kind}/{name}": segment.view(flat, name)
            for segment in self.segments
            for kind, flat in segment.state.items()
            for name in segment.places
        }

    def add_state(self, kinds: Iterable[str]) -> None:
        """Give every segment the zeroed state that an optimizer works with."""
        for segment in self.segments:
            segment.state = {k: aligned_zeros(segment.p.size, segment.p.dtype) for k in kinds}

    def load(self, tensors: Mapping[str, np.ndarray], state: Mapping[str, np.ndarray]) -> None:
        """Copy the numbers of parameters and statistics, and of the optimizer's state, into place."""
        for name, array in self.tensors().items():
            array[...] = tensors[name]
        for name, array in self.state().items():
            array[...] = state[name]

    def take_statistics(self) -> None:
        """Make the statistics that the last step wrote the current ones."""
        for name, new in self.next_statistics.items():
            self.statistics[name][...] = new

    def flat(self) -> np.ndarray:
        """Return every parameter, one after the other, as a new vector."""
        return np.concatenate([self.parameter(n).reshape(-1) for n in self.names])

    def set_flat(self, vector: np.ndarray) -> None:
        """Set every parameter from a vector as `flat` gives it."""
        size = sum(self.parameter(n).size for n in self.names)
        vector = np.asarray(vector)
        if vector.shape != (size,):
            raise ValueError(f"weights have shape {list(vector.shape)}, expected [{size}]")
        at = 0
        for name in self.names:
            to = self.parameter(name)
            to[...] = vector[at : at + to.size].reshape(to.shape)
            at += to.size

    def assign(self, weights: Mapping[str, np.ndarray]) -> None:
        """Set tensors by name; all of them fit, or none is set."""
        own = self.tensors()
        for name, array in weights.items():
            if name not in own:
                raise ValueError(f"the trainer has no weight {name!r}")
            if np.shape(array) != own[name].shape:
                raise ValueError(
                    f"weight {name!r} has shape {list(np.shape(array))}, "
                    f"expected {list(own[name].shape)}"
                )
        for name, array in weights.items():
            own[name][...] = array
