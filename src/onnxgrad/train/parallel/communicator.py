"""What a run asks of the processes that train together, and what a single process answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class Communicator(Protocol):
    """The processes of one run. Every process calls the same methods in the same order."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0; process 0 writes the files."""

    @property
    def size(self) -> int:
        """How many processes there are."""

    def all_gather(self, value: Any) -> list[Any]:
        """Return what every process gave, by rank: plain data, small arrays."""

    def all_reduce(self, flat: np.ndarray) -> None:
        """Replace a flat buffer, in place, by its sum over the processes, in whatever order is fast."""

    def exchange(self, flat: np.ndarray, sent: Sequence[int], taken: Sequence[int]) -> np.ndarray:
        """Send the next `sent[r]` numbers of `flat` to each process r; return what came, `taken[r]` from each."""

    def collect(self, flat: np.ndarray, counts: Sequence[int]) -> None:
        """Fill `flat`, in place, with the `counts[r]` numbers that each process r has in its part of it."""


class Alone:
    """One process: its gradients are the gradients."""

    rank = 0
    size = 1

    def all_gather(self, value: Any) -> list[Any]:
        return [value]

    def all_reduce(self, flat: np.ndarray) -> None:
        """Leave the buffer as it is."""

    def exchange(self, flat: np.ndarray, sent: Sequence[int], taken: Sequence[int]) -> np.ndarray:
        return flat.copy()

    def collect(self, flat: np.ndarray, counts: Sequence[int]) -> None:
        """Leave the buffer as it is."""
