"""`onnxgrad ops`: our kernels, and the state of every operator's gradient."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from onnxgrad.cli import main


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LeakyReluGrad", "dX = Y > 0 ? dY : alpha·dY"),
        ("relu_grad", "ReluGrad"),
        ("relugrad", "ReluGrad"),
        ("RELU_GRAD", "ReluGrad"),
        ("argmax", "ArgMax  gradient: zero"),
        ("Conv", "with a kernel of ours"),
        ("Mul", "gradient: rule"),
        ("ArgMax", "gradient: zero"),
        ("DeformConv", "gradient: refused"),
        ("HardSwish", "gradient: "),
    ],
)
def test_one_operator(name, expected, capsys):
    assert main(["ops", name]) == 0
    assert expected in capsys.readouterr().out


def test_the_list(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["ops"]) == 0
    out = capsys.readouterr().out
    assert "GeluGrad" in out
    for kind in ("rule and kernel", "inlined", "zero", "refused"):
        assert f"\n{kind}" in out


@pytest.mark.parametrize("name", ["ReluGrat", "relugrat", "RELU_GRAT"])
def test_a_misspelt_name(name, capsys):
    assert main(["ops", name]) == 2
    assert "did you mean ReluGrad?" in capsys.readouterr().err


def command(*arguments: str, stdout: int = subprocess.PIPE, **environment: str):
    """The command in a process of its own, with a buffer before stdout as at a user's."""
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, "-m", "onnxgrad", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**variables, **environment},
        text=True,
    )


@pytest.mark.parametrize("arguments", ["ops", "ops GeluGrad", "--version", "ops --help"])
def test_a_pipe_that_nobody_reads(arguments):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = command(*arguments.split(), stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_without_greek():
    done = command("ops", "GeluGrad", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "dX = dY?(" in done.stdout
