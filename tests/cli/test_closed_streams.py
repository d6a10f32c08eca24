"""Standard streams that are closed or full: nothing stops, and no file takes their place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onnxgrad.cli.texts import Unbroken

COMMAND = f"{sys.executable} -m onnxgrad ops ReluGrad"


@pytest.mark.parametrize(("closed", "code"), [(">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0)])
def test_closed_streams(closed, code):
    done = subprocess.run(f"{COMMAND} {closed}", shell=True, capture_output=True, text=True)
    assert done.returncode == code
    assert done.stderr == ""


def test_files_do_not_get_the_numbers_of_closed_streams():
    """A library that prints would write into the first file that is opened."""
    program = (
        "import os, onnxgrad.__main__ as m; m._open_streams(); print(os.open('/dev/null', 0), "
        "file=open('number', 'w'))"
    )
    done = subprocess.run(f'{sys.executable} -c "{program}" <&- >&- 2>&-', shell=True)
    assert done.returncode == 0
    assert int(Path("number").read_text()) > 2


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a file of Linux")
def test_a_full_disk_behind_the_output(capsys):
    handle = os.open("/dev/full", os.O_WRONLY)
    with os.fdopen(handle, "w") as full:
        output = Unbroken(full)
        output.write("a line\n")
        output.flush()
        output.write("another\n")
        output.flush()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cannot be written any more (No space left on device); the work goes on" in said


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a file of Linux")
def test_a_full_disk_behind_the_errors():
    command = f"{sys.executable} -m onnxgrad inspect nothing.onnx 2> /dev/full"
    assert subprocess.run(command, shell=True).returncode == 2
