"""A command as one of the processes that mpiexec, or srun, has started: one of them speaks for all."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

from onnxgrad.cli.exit_codes import USAGE
from onnxgrad.cli.outcome import outcome, said
from onnxgrad.errors import ConfigError

# What the launchers of Open MPI, MPICH, Intel MPI, MVAPICH, PMIx and Slurm tell a process.
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK")


def launched() -> bool:
    """Whether a launcher of MPI has started this process."""
    return any(name in os.environ for name in RANKS)


def together(options: argparse.Namespace, run: Callable[[argparse.Namespace, Any], int]) -> int:
    """Run a command in all processes; process 0 speaks for them, and a failure of one is a failure of all."""
    from onnxgrad.train.parallel.group import Group
    from onnxgrad.train.parallel.mpi import finish, world

    try:
        communicator = world()
    except ConfigError:
        if _told_rank():  # all see it, one says it
            return USAGE
        raise
    if communicator.rank:
        options.quiet, options.json = True, False

    def run_it() -> int:
        with Group(communicator).together():
            return run(options, communicator)

    code, sentence = outcome(run_it)
    if communicator.rank == 0:
        said(code, sentence)
    return finish(communicator, code, str(sentence))


def _told_rank() -> int:
    told = next((os.environ[name] for name in RANKS if name in os.environ), "")
    return int(told) if told.isdigit() else 0
