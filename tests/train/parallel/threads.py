"""Processes of a run, played by threads: each with a communicator and a Trainer of its own."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

SECONDS = 60  # after which a test has failed: nobody may wait for ever


class Board:
    """What all of them see: a place for everyone's message, and a barrier before and after it is read."""

    def __init__(self, size: int):
        self.size, self.places = size, [None] * size
        self.barrier = threading.Barrier(size)


class ThreadCommunicator:
    """One of the threads. `received` counts the numbers that came from others in the last exchange."""

    def __init__(self, board: Board, rank: int):
        self.board, self.rank, self.size = board, rank, board.size
        self.received = 0

    def all_gather(self, value: Any) -> list[Any]:
        self.board.places[self.rank] = copy.deepcopy(value)
        self.board.barrier.wait(SECONDS)
        found = copy.deepcopy(self.board.places)
        self.board.barrier.wait(SECONDS)
        return found

    def all_reduce(self, flat: np.ndarray) -> None:
        flat[...] = sum(self.all_gather(flat.copy()))

    def exchange(self, flat: np.ndarray, sent: Sequence[int], taken: Sequence[int]) -> np.ndarray:
        pieces = np.split(flat, np.cumsum(sent)[:-1])
        mine = [theirs[self.rank] for theirs in self.all_gather([p.copy() for p in pieces])]
        assert [len(p) for p in mine] == list(taken)
        self.received = sum(taken) - taken[self.rank]
        return np.concatenate(mine)

    def collect(self, flat: np.ndarray, counts: Sequence[int]) -> None:
        ends = np.cumsum(counts)
        own = slice(ends[self.rank] - counts[self.rank], ends[self.rank])
        flat[...] = np.concatenate(self.all_gather(flat[own].copy()))


def together(size: int, work: Callable[[ThreadCommunicator], Any]) -> list[Any]:
    """Do the work in `size` threads; return what each returned, or the exception that it raised."""
    board, results = Board(size), [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadCommunicator(board, rank))
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "a process waits for ever"
    return results
