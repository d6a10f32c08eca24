"""One of several processes: which of them speaks, and how it knows that it is one."""

from __future__ import annotations

import argparse
import contextlib
import types

import pytest

from onnxgrad.cli import launcher
from onnxgrad.cli.exit_codes import USAGE
from onnxgrad.errors import ConfigError, DataError
from onnxgrad.train.parallel import group, mpi


@pytest.fixture(autouse=True)
def nobody(monkeypatch):
    for name in launcher.RANKS:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", launcher.RANKS)
def test_a_launcher_tells_the_rank(name, monkeypatch):
    assert not launcher.launched()
    assert launcher._told_rank() == 0
    monkeypatch.setenv(name, "3")
    assert launcher.launched()
    assert launcher._told_rank() == 3
    monkeypatch.setenv(name, "none")
    assert launcher._told_rank() == 0


def run(rank: int, work, monkeypatch) -> tuple[int, argparse.Namespace, list]:
    """A command in a process of this rank, with what it was ended by."""
    ended = []
    communicator = types.SimpleNamespace(rank=rank, size=1, all_gather=lambda value: [value])
    monkeypatch.setattr(mpi, "world", lambda: communicator)
    monkeypatch.setattr(mpi, "finish", lambda c, code, said: ended.append(said) or code)
    monkeypatch.setattr(group.Group, "together", lambda self: contextlib.nullcontext())
    options = argparse.Namespace(quiet=False, json=True)
    return launcher.together(options, work), options, ended


def test_process_0_speaks(monkeypatch, capsys):
    def fails(options, communicator):
        raise DataError("no rows")

    code, options, ended = run(0, fails, monkeypatch)
    assert (code, options.quiet, options.json, ended) == (2, False, True, ["no rows"])
    assert capsys.readouterr().err == "onnxgrad: no rows\n"


def test_the_others_are_quiet(monkeypatch, capsys):
    def fails(options, communicator):
        raise DataError("no rows")

    code, options, ended = run(1, fails, monkeypatch)
    assert (code, options.quiet, options.json, ended) == (2, True, False, ["no rows"])
    assert capsys.readouterr().err == ""
    code, _, ended = run(1, lambda options, communicator: 0, monkeypatch)
    assert (code, ended) == (0, [""])


def test_a_world_that_cannot_be_is_said_once(monkeypatch, capsys):
    def broken():
        raise ConfigError("no MPI")

    monkeypatch.setattr(mpi, "world", broken)
    with pytest.raises(ConfigError, match="no MPI"):
        launcher.together(argparse.Namespace(), None)
    monkeypatch.setenv(launcher.RANKS[0], "1")
    assert launcher.together(argparse.Namespace(), None) == USAGE
