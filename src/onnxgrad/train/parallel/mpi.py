"""MPI, by way of mpi4py: the only file that knows it."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxgrad.errors import ConfigError

# How many processes the launchers of Open MPI, MPICH, Intel MPI and MVAPICH say there are.
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
EAGER = 200  # looks at others before the waiting process sleeps between them
NAP = 2e-4  # seconds
PATIENCE = 2.0  # seconds that a process which fails waits for the others to fail too


class MpiCommunicator:
    """The processes of an mpi4py communicator, such as MPI.COMM_WORLD."""

    def __init__(self, communicator: Any):
        self._mpi = _mpi()
        self._comm = communicator.Dup()  # messages of ours do not meet the caller's
        self.rank, self.size = communicator.Get_rank(), communicator.Get_size()
        if self.size > 1:
            _end_all_when_one_fails(self._comm)

    def all_gather(self, value: Any) -> list[Any]:
        self.wait()
        return self._comm.allgather(value)

    def all_reduce(self, flat: np.ndarray) -> None:
        self._comm.Allreduce(self._mpi.IN_PLACE, flat)

    # Messages between pairs: MPICH's Alltoallv and Allgatherv take up to a hundred times as long where
    # there are more processes than cores.

    def exchange(self, flat: np.ndarray, sent: Sequence[int], taken: Sequence[int]) -> np.ndarray:
        received = np.empty(sum(taken), flat.dtype)
        outgoing, incoming = np.split(flat, _ends(sent)), np.split(received, _ends(taken))
        incoming[self.rank][...] = outgoing[self.rank]
        self._pairwise(outgoing, incoming)
        return received

    def collect(self, flat: np.ndarray, counts: Sequence[int]) -> None:
        parts = np.split(flat, _ends(counts))
        self._pairwise([parts[self.rank]] * self.size, parts)

    def _pairwise(self, outgoing: list[np.ndarray], incoming: list[np.ndarray]) -> None:
        others = [r for r in range(self.size) if r != self.rank]
        requests = [self._comm.Irecv(incoming[r], source=r) for r in others]
        requests += [self._comm.Isend(outgoing[r], dest=r) for r in others]
        self._mpi.Request.Waitall(requests)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until all processes are here; False if they were not within so many seconds.

        MPI waits by asking again and again, which takes the core from others, and lets no signal through.
        """
        request, began = self._comm.Ibarrier(), time.monotonic()
        for _ in range(EAGER):
            if request.Test():
                return True
        while not request.Test():
            if seconds is not None and time.monotonic() - began > seconds:
                return False
            time.sleep(NAP)
        return True

    def abort(self, code: int) -> None:
        """End all processes at once."""
        sys.stdout.flush()
        sys.stderr.flush()
        self._comm.Abort(code)


def _ends(counts: Sequence[int]) -> list[int]:
    """Where parts of these lengths end, but for the last."""
    return [int(end) for end in np.cumsum(counts)[:-1]]


def world() -> MpiCommunicator:
    """All processes that the launcher has started. Raises ConfigError where they cannot find each other."""
    found = _mpi().COMM_WORLD
    told = next((os.environ[name] for name in SIZES if name in os.environ), "")
    if told.isdigit() and int(told) != found.Get_size():
        raise ConfigError(
            f"the launcher has started {told} processes, and MPI sees {found.Get_size()}: mpiexec and mpi4py belong to "
            "different MPI installations; use the mpiexec of the one that mpi4py was installed with"
        )
    return MpiCommunicator(found)


def finish(communicator: MpiCommunicator, code: int, sentence: str = "") -> int:
    """End this process in order, or all of them where the others cannot know that this one has failed."""
    if code == 0:
        communicator.wait()
    elif not communicator.wait(PATIENCE):
        if sentence and communicator.rank:
            print(f"onnxgrad: process {communicator.rank}: {sentence}", file=sys.stderr)
        communicator.abort(code)
    return code


def _mpi() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ConfigError(
            "several processes need mpi4py: pip install 'onnxgrad[mpi]', and an MPI library such as "
            f"pip install mpich ({error})"
        ) from error
    return MPI


def _end_all_when_one_fails(communicator: Any) -> None:
    """An uncaught exception would leave the others waiting for this process, which waits for them at its exit."""
    before = sys.excepthook
    if getattr(before, "ends_all", False):
        return

    def hook(kind, error, trace) -> None:
        if before is sys.__excepthook__:
            rank = communicator.Get_rank()
            print(
                f"process {rank}: " + "".join(traceback.format_exception(error)),
                end="",
                file=sys.stderr,
            )
        else:
            before(kind, error, trace)
        sys.stderr.flush()
        communicator.Abort(1)

    hook.ends_all = True
    sys.excepthook = hook
