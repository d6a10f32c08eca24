"""A command reads its model file once. What onnxruntime opens by itself is not counted: Python does not see it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from job.problem import write_problem

COMMANDS = [
    "inspect model.onnx",
    "inspect model.onnx --lora r=2",
    "train model.onnx --data d.npz -o tuned.onnx --epochs 1",
    "train model.onnx --data d.npz -o classes.onnx --epochs 1 --classes auto",
    "eval model.onnx --data d.npz",
    "predict model.onnx --data d.npz -o p.npz",
    "check model.onnx --directions 1",
    "grad model.onnx -o gradient.onnx",
    "step model.onnx --loss cross_entropy -o step.onnx",
    "artifacts model.onnx -o artifacts",
]
# Audit hooks see every file that Python opens, by whatever function; they cannot be taken off again.
PROGRAM = """
import contextlib, io, json, os, sys
found = []

def hook(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
        found.append(os.path.basename(os.fsdecode(arguments[0])))

sys.addaudithook(hook)
from onnxgrad.cli import main
counts = {}
for command in json.loads(sys.argv[1]):
    found.clear()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        code = main(command.split())
    counts[command] = [code, found.count("model.onnx"), said.getvalue()]
print(json.dumps(counts))
"""


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reads")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_problem()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(COMMANDS)],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("command", COMMANDS)
def test_the_model_is_read_once(command, counts):
    code, times, said = counts[command]
    assert code == 0, said
    assert times == 1
