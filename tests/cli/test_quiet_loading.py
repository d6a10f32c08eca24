"""onnxruntime's warnings on load are not shown: what a file has too much of is no news to the person who trains it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from job.problem import write_problem

COMMANDS = [
    ("inspect", "old.onnx"),
    ("train", "old.onnx", "--data", "d.npz", "-o", "t.onnx", "--epochs", "1"),
    ("predict", "old.onnx", "--data", "d.npz", "-o", "p.npz"),
    ("eval", "old.onnx", "--data", "d.npz"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_a_file_with_weights_as_inputs_and_one_too_many_is_loaded_without_a_word(
    command, tmp_path, monkeypatch
):
    """A plain session writes a line per weight; they come from C++, so that only a process shows them."""
    monkeypatch.chdir(tmp_path)
    write_problem()
    model = onnx.load("model.onnx")
    for tensor in model.graph.initializer:
        shape = list(tensor.dims)
        value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, shape)
        model.graph.input.append(value)
    unused = onnx.numpy_helper.from_array(np.zeros(3, np.float32), "unused")
    model.graph.initializer.append(unused)
    onnx.save(model, "old.onnx")
    plain = "import onnxruntime; onnxruntime.InferenceSession('old.onnx')"
    noisy = subprocess.run([sys.executable, "-c", plain], capture_output=True, text=True)
    assert "[W:onnxruntime" in noisy.stderr  # else there is nothing to keep away
    done = subprocess.run(
        [sys.executable, "-m", "onnxgrad", *command], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
