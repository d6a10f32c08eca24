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

from onnxgrad.cli import main
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
    first = train(
        "-o", "a.onnx", "--run-dir", "run", "--epochs", "100000", preexec_fn=in_background
    )
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
    out, _ = first.communicate(timeout=60)
    assert first.returncode == 130, "SIGTERM ends a run as Ctrl-C does"
    assert "a checkpoint is saved" in out
    assert list(Path("run/checkpoints").glob("step-*"))


def in_background() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for `command &` in a script


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


def test_predictions_under_names_that_a_function_of_numpy_takes_for_itself(tmp_path):
    """Files of a folder are one of them, and an output of a model may be called anything."""
    from onnxgrad.cli.predict import as_npz
    from onnxgrad.job.predictions import Predictions

    outputs = {name: np.full((2, 1), 1.5, np.float32) for name in ("allow_pickle", "arr_0", "/a/b")}
    (tmp_path / "p.npz").write_bytes(as_npz(Predictions(outputs, names=["1.png", "2.png"])))
    with np.load(tmp_path / "p.npz") as found:
        assert list(found["file"]) == ["1.png", "2.png"]
        for name in outputs:
            np.testing.assert_array_equal(found[name], outputs[name])


def test_names_of_outputs_are_printed_without_escapes(box, capsys):
    model = onnx.load("m.onnx")
    model.graph.node[-1].output[0] = model.graph.output[0].name = "y\x1b[2J\u202e"
    onnx.save(model, "m.onnx")
    assert main(["predict", "m.onnx", "--data", "d.npz", "-o", "p.csv", "--target", "y"]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\u202e" not in said
