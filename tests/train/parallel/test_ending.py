"""A process that fails ends all of them, and says which one it was; without MPI, by a communicator that writes down."""

from __future__ import annotations

import sys
import types

import pytest

from onnxgrad.errors import ConfigError
from onnxgrad.train.parallel import mpi


class Written:
    """Answers like a communicator of mpi4py."""

    def __init__(self, ready: bool = True, size: int = 4):
        self.codes, self.ready, self.size = [], ready, size

    def Get_rank(self):
        return 3

    def Get_size(self):
        return self.size

    def Abort(self, code):
        self.codes.append(code)

    def Ibarrier(self):
        return types.SimpleNamespace(Test=lambda: self.ready)


def fail(kind=ValueError) -> None:
    try:
        raise kind("no such thing")
    except kind as error:
        sys.excepthook(kind, error, error.__traceback__)


def test_an_uncaught_exception_ends_all(monkeypatch, capsys):
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    communicator, other = Written(), Written()
    mpi._end_all_when_one_fails(communicator)
    mpi._end_all_when_one_fails(other)  # once is enough
    fail()
    said = capsys.readouterr().err
    assert said.startswith("process 3: Traceback (most recent call last):\n")
    assert said.endswith("ValueError: no such thing\n")
    assert (communicator.codes, other.codes) == ([1], [])


def test_a_hook_of_ones_own_speaks_instead(monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(sys, "excepthook", lambda *given: seen.append(given[0]))
    communicator = Written()
    mpi._end_all_when_one_fails(communicator)
    fail(KeyError)
    assert (seen, communicator.codes) == ([KeyError], [1])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("ready", "rank", "said", "codes"), [
    (True, 3, "", []), (False, 3, "onnxgrad: process 3: the disk is gone\n", [2]), (False, 0, "", [2]),
])  # fmt: skip
def test_the_end_of_a_process_that_failed(ready, rank, said, codes, monkeypatch, capsys):
    """All others know, or do not come: then it speaks, unless it is the first, which has spoken, and ends them."""
    monkeypatch.setattr(mpi, "PATIENCE", 0.01)
    written = Written(ready)
    communicator = mpi.MpiCommunicator.__new__(mpi.MpiCommunicator)
    communicator._comm, communicator.rank = written, rank
    assert mpi.finish(communicator, 2, "the disk is gone") == 2
    assert (capsys.readouterr().err, written.codes) == (said, codes)


def test_a_launcher_of_another_mpi_is_named(monkeypatch):
    monkeypatch.setattr(mpi, "_mpi", lambda: types.SimpleNamespace(COMM_WORLD=Written(size=1)))
    for name in mpi.SIZES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(mpi.SIZES[0], "4")
    with pytest.raises(
        ConfigError, match="the launcher has started 4 processes, and MPI sees 1: mpiexec and"
    ):
        mpi.world()
