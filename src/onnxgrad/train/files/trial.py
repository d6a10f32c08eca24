"""Load a file in another process first: onnxruntime's optimizers crash on some, and a run would be lost with them."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

from onnxgrad.files.write import write_bytes

SECONDS = 600
_CHILD = """
import sys, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
if sys.argv[2] == "plain":
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
"""


def crash_of(model: str | Path | onnx.ModelProto, optimised: bool = True) -> str:
    """Return the name of the signal that ends a process which loads a model; "" where none does."""
    if isinstance(model, onnx.ModelProto):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            write_bytes(path, model.SerializeToString())
            return crash_of(path, optimised)
    command = [sys.executable, "-c", _CHILD, str(model), "optimised" if optimised else "plain"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return ""  # what is slow is no crash
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name
    return "" if done.returncode < 256 else hex(done.returncode)  # as Windows has it
