"""`onnxgrad train --lora` and `inspect --lora`: from a file and data to an adapter, also after kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from job.problem import X, run

TRAIN = ("train", "model.onnx", "--data", "d.npz", "--quiet", "--lora", "r=2,targets=w*")


def outputs(path: str, adapter: str | None = None) -> np.ndarray:
    options, run_options = onnxruntime.SessionOptions(), onnxruntime.RunOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    if adapter:
        loaded = onnxruntime.LoraAdapter()
        loaded.Load(adapter)
        run_options.add_active_adapter(loaded)
    return session.run(None, {"x": X}, run_options)[0]


def test_a_folder_with_an_adapter_is_written(folder, capsys):
    code, _, err = run(capsys, *TRAIN, "-o", "adapter", "--epochs", 3, "--run-dir", "r")
    assert code == 0, err
    assert sorted(p.name for p in Path("adapter").iterdir()) == [
        "adapter.onnx_adapter", "adapter_config.json", "adapter_model.safetensors", "model.onnx",
    ]  # fmt: skip
    before = outputs("model.onnx")
    np.testing.assert_allclose(outputs("adapter/model.onnx"), before, atol=1e-6)
    tuned = outputs("adapter/model.onnx", "adapter/adapter.onnx_adapter")
    assert np.abs(tuned - before).max() > 0.01
    line = (
        *TRAIN[:4],
        "--quiet",
        "--lora-from",
        "adapter",
        "--lr",
        1e-30,
        "--epochs",
        1,
        "--merge",
    )
    code, _, err = run(capsys, *line, "-o", "merged.onnx", "--run-dir", "s")
    assert code == 0, err
    np.testing.assert_allclose(outputs("merged.onnx"), tuned, atol=1e-5)


REFUSED = [
    (("-o", "a.onnx", "--lora", "r=2"), "name a folder, or add --merge"),
    (("-o", "a", "--lora", "r=0"), "lora: r is 0, expected a rank of at least 1"),
    (
        ("-o", "a", "--lora", "targets=q_proj"),
        "lora: the target 'q_proj' matches none of the model's",
    ),
    (("-o", "a", "--lora-from", "d.npz"), "d.npz is not an adapter of onnxruntime"),
    (("-o", "a", "--lora-from", "nothing"), "the adapter nothing does not exist"),
]


@pytest.mark.parametrize(("flags", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_what_cannot_be_is_refused_in_one_sentence(folder, capsys, flags, message):
    code, _, err = run(capsys, *TRAIN[:4], *flags)
    assert code == 2
    assert message in " ".join(err.split())
    assert "Traceback" not in err


def test_inspect_shows_what_would_be_trained(folder, capsys):
    code, out, _ = run(
        capsys, "inspect", "model.onnx", "--lora", "r=2,targets=all-linear", "--json"
    )
    found = json.loads(out)
    assert code == 0
    assert [(x["layer"], x["in"], x["out"], x["numbers"]) for x in found["layers"]] == [
        ("w1", 4, 8, 24),
        ("w2", 8, 3, 22),
    ]
    assert (found["numbers"], found["numbers_of_the_model"]) == (46, 56)
    code, out, _ = run(capsys, "inspect", "model.onnx", "--lora", "r=2,targets=all-linear")
    assert code == 0
    assert "LoRA of rank 2, alpha 4, on 2 layers" in " ".join(out.split())


def test_a_killed_run_resumes_to_the_same_bits(folder):
    command = [sys.executable, "-m", "onnxgrad", *TRAIN, "--epochs", "600", "--batch-size", "8"]
    subprocess.run([*command, "-o", "whole", "--run-dir", "w"], check=True)
    process = subprocess.Popen([*command, "-o", "cut", "--run-dir", "c"])
    end = time.monotonic() + 120
    while not list(Path("c/checkpoints").glob("step-*")) and time.monotonic() < end:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not Path("cut").exists()
    subprocess.run(
        [sys.executable, "-m", "onnxgrad", "train", "--resume", "c", "--quiet"], check=True
    )
    for name in ("adapter.onnx_adapter", "adapter_model.safetensors"):
        assert (Path("cut") / name).read_bytes() == (Path("whole") / name).read_bytes()
