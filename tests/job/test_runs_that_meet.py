"""Runs that meet: two in one folder, signals, readers that leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxgrad.errors import OnnxGradError
from onnxgrad.job.config import Config
from onnxgrad.job.folder import new_folder, take, write_arguments

ONNXGRAD = [sys.executable, "-m", "onnxgrad"]


@pytest.fixture
def box(tmp_path, monkeypatch):
    """A small problem in the working folder."""
    monkeypatch.chdir(tmp_path)
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 3] x) => (float[N, 1] y) <float[3, 1] w = {0, 0, 0}> { y = MatMul(x, w) }""")
    Path("m.onnx").write_bytes(model.SerializeToString())
    x = np.random.default_rng(0).standard_normal((64, 3)).astype(np.float32)
    np.savez("d.npz", x=x, y=x.sum(1, keepdims=True))
    return tmp_path


def train(*more: str, **options) -> subprocess.Popen:
    command = [*ONNXGRAD, "train", "m.onnx", "--data", "d.npz", "--loss", "mse", *more]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_a_folder_has_one_run_at_a_time(tmp_path):
    first = take(tmp_path)
    with pytest.raises(OnnxGradError, match="is in use by another run"):
        take(tmp_path)
    first.release()
    take(tmp_path)


def test_runs_that_start_together_get_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found, barrier = [], threading.Barrier(8)

    def begin():
        barrier.wait()
        found.append(new_folder(Config(), "m.onnx"))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(str(f) for f, _ in found) == [f"runs/m-{i}" for i in range(1, 9)]


def test_a_name_cannot_add_settings(tmp_path):
    import yaml

    write_arguments(tmp_path, "m.onnx\nlr: 5.0\nepochs: 99", Config(data="d.csv\nseed: 7"))
    found = yaml.safe_load((tmp_path / "args.yaml").read_text())
    assert (found["lr"], found["epochs"], found["seed"]) == (
        Config().lr,
        Config().epochs,
        Config().seed,
    )
    assert found["data"] == "d.csv\nseed: 7"


def test_the_second_run_in_a_folder_is_refused(box):
    first = train("-o", "a.onnx", "--run-dir", "run", "--epochs", "100000")
    try:
        wait_for(Path("run/results.csv"))
        second = train("-o", "b.onnx", "--run-dir", "run")
        assert second.wait() == 2
        again = subprocess.run(
            [*ONNXGRAD, "train", "--resume", "run"], capture_output=True, text=True
        )
        assert again.returncode == 2
        assert "run is in use by another run" in again.stderr
    finally:
        first.send_signal(signal.SIGTERM)
    out, _ = first.communicate()
    assert first.returncode == 130, "SIGTERM ends a run as Ctrl-C does"
    assert "a checkpoint is saved" in out
    assert list(Path("run/checkpoints").glob("step-*"))


def wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_reader_that_leaves_does_not_stop_the_training(box):
    read, write = os.pipe()
    os.close(read)
    command = [*ONNXGRAD, "train", "m.onnx", "--data", "d.npz", "--loss", "mse", "-o", "t.onnx"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert done.returncode == 0, done.stderr
    assert "the reader of the output has gone; the work goes on" in done.stderr
    assert Path("t.onnx").exists()


def test_cells_that_a_spreadsheet_would_run():
    from onnxgrad.cli.predict import as_csv
    from onnxgrad.job.predictions import Predictions

    outputs = {"=cmd()": np.array([[-1.5, 2.0], [3.0, -4.0]], np.float32)}
    text = as_csv(Predictions(outputs, answers=["good", "@evil"])).decode()
    assert text == "class,'=cmd()_0,'=cmd()_1\ngood,-1.5,2.0\n'@evil,3.0,-4.0\n"
