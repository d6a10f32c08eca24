"""What a step asks of the processes that train together. It is asked between backward and optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

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

    def average(self, buffers: Sequence[np.ndarray]) -> None:
        """Replace each flat buffer, in place, by its mean over the processes: the same bits in all of them."""


class Alone:
    """One process: its gradients are the gradients."""

    rank = 0
    size = 1

    def average(self, buffers: Sequence[np.ndarray]) -> None:
        """Leave the buffers as they are."""
