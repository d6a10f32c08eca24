"""How the work of a batch is divided: into micro-batches, and these among the processes."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import Any

import numpy as np

from onnxgrad.data.arrays import Batch
from onnxgrad.data.share import Share, cut, share_of_rank
from onnxgrad.train.parallel.communicator import Alone, Communicator
from onnxgrad.train.parallel.group import Group
from onnxgrad.train.parallel.mpi import MpiCommunicator

MICRO_BATCHES = 8  # where nothing is said: as many processes can train together with the same bits


class Division:
    """The processes of a run, and which micro-batches of every batch are this one's.

    `share` is None where one process computes a batch in one run.
    """

    def __init__(self, communicator: Any, micro_batches: int | None, reproducible: bool):
        self.group = Group(as_communicator(communicator))
        self.reproducible = reproducible
        size = self.group.size
        if micro_batches is None:
            micro_batches = 1 if communicator is None else MICRO_BATCHES
        if micro_batches < 1 or micro_batches & (micro_batches - 1):
            raise ValueError(
                f"micro_batches is {micro_batches!r}, expected a power of two, or None"
            )
        if not reproducible:
            micro_batches = size
        elif size > micro_batches:
            raise ValueError(
                f"{size} processes cannot share {micro_batches} micro-batches: take micro_batches="
                f"{1 << (size - 1).bit_length()} or more, or reproducible=False"
            )
        self.micro_batches = micro_batches
        whole = size == 1 and micro_batches == 1
        self.share: Share | None = (
            None if whole else share_of_rank(self.group.rank, size, micro_batches)
        )
        self.group.equal("number of micro-batches", (micro_batches, reproducible))

    def settings(self, communicator: Any) -> dict[str, int]:
        """What a Trainer without the communicator must be given to train the same bits."""
        fixed = communicator is not None and self.reproducible
        return {"micro_batches": self.micro_batches} if fixed else {}

    def of(self, batch: Batch) -> Batch:
        """This process's part of a batch; one that is a part already stays."""
        if self.share is None or batch.cuts is not None:
            return batch
        arrays = {name: np.asarray(a) for name, a in batch.arrays.items()}
        return cut(replace(batch, arrays=arrays), self.share)

    def threads(self, asked: int | None) -> int | None:
        """How many threads this process takes: those asked for, or its part of the cores of its machine."""
        if asked is not None and not 1 <= asked <= 1024:
            raise ValueError(f"threads is {asked!r}, expected an integer from 1 to 1024, or None")
        if asked is not None or self.group.size == 1:
            return asked
        cores = sorted(_cores())
        every = self.group.gather("counting cores", (socket.gethostname(), cores))
        return cores_of(self.group.rank, every)


def cores_of(rank: int, every: list[tuple[str, list[int]]]) -> int:
    """The cores of a process, each counted in parts where several processes of its machine may use it.

    >>> cores_of(0, [("a", [0, 1, 2, 3]), ("a", [0, 1, 2, 3])]), cores_of(1, [("a", [0]), ("a", [1, 2])])
    (2, 2)
    """
    host, mine = every[rank]
    users = [cores for where, cores in every if where == host]
    return max(1, int(sum(1 / sum(core in cores for cores in users) for core in mine) + 1e-9))


def _cores() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def as_communicator(given: Any) -> Communicator:
    """A Communicator from what a caller gives: None, one of ours, or a communicator of mpi4py."""
    if given is None:
        return Alone()
    if isinstance(given, Communicator):
        return given
    if hasattr(given, "Get_rank") and hasattr(given, "Dup"):
        return MpiCommunicator(given)
    raise ValueError(
        f"communicator is a {type(given).__name__}, expected MPI.COMM_WORLD of mpi4py or an onnxgrad Communicator"
    )
