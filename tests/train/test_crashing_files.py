"""Files on which onnxruntime's optimizers crash: a run is not lost with the process that saves it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgrad import Trainer
from onnxgrad.errors import ExportError
from onnxgrad.train.files import trial, verify

HIDDEN = 16


def halves() -> onnx.ModelProto:
    """An LSTM in float16 as PyTorch writes one with batch_first; onnxruntime 1.31 crashes while it optimises it."""
    rng = np.random.default_rng(0)
    shapes = {
        "W": (2, 4 * HIDDEN, 4),
        "R": (2, 4 * HIDDEN, HIDDEN),
        "B": (2, 8 * HIDDEN),
        "H": (2 * HIDDEN, 3),
    }
    node = helper.make_node
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("LSTM", ["t", "W", "R", "B"], ["h"], hidden_size=HIDDEN, direction="bidirectional"),
        node("Transpose", ["h"], ["b"], perm=[0, 2, 1, 3]),
        node("Reshape", ["b", "shape"], ["r"]),
        node("Transpose", ["r"], ["f"], perm=[1, 0, 2]),
        node("MatMul", ["f", "H"], ["y"]),
    ]
    tensors = {n: (rng.normal(size=s) / 4).astype(np.float16) for n, s in shapes.items()}
    tensors["shape"] = np.array([0, 0, -1])
    info, half = helper.make_tensor_value_info, TensorProto.FLOAT16
    graph = helper.make_graph(
        nodes, "g", [info("x", half, ["N", 5, 4])], [info("y", half, ["N", 5, 3])],
        [numpy_helper.from_array(a, n) for n, a in tensors.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def train_and_save(path) -> Trainer:
    trainer = Trainer(halves(), loss="mse", optimizer="sgd", lr=0.1)
    x = np.random.default_rng(1).normal(size=(2, 5, 4)).astype(np.float32)
    trainer.step(x, np.zeros((2, 5, 3), np.float32))
    trainer.save(path)
    return trainer


def crashes(monkeypatch, *where: tuple[str, bool]) -> None:
    """Let loading crash: `where` are "came" or "written", and whether with optimisers."""

    def crash_of(model, optimised=True):
        name = "came" if isinstance(model, onnx.ModelProto) else "written"
        return "SIGSEGV" if (name, optimised) in where else ""

    monkeypatch.setattr(verify, "crash_of", crash_of)


def test_an_lstm_in_halves_is_saved_whatever_the_runtime_does(tmp_path):
    path = tmp_path / "tuned.onnx"
    code = f"from train.test_crashing_files import train_and_save; train_and_save({str(path)!r})"
    here = str(verify.__file__).split("/src/")[0]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"], cwd=here,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = onnx.load(path)
    assert {t.data_type for t in written.graph.initializer} == {
        TensorProto.FLOAT16,
        TensorProto.INT64,
    }


def test_a_crash_like_the_originals_is_a_note(monkeypatch, tmp_path):
    crashes(monkeypatch, ("came", True), ("written", True))
    trainer = train_and_save(tmp_path / "tuned.onnx")
    assert [str(n) for n in trainer.notes if n.kind == "unoptimised"] == [
        "onnxruntime crashes while it optimises it (SIGSEGV), like the original; load it with ORT_DISABLE_ALL; "
        "--keep-float32 writes float32"
    ]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    onnxruntime.InferenceSession(
        tmp_path / "tuned.onnx", options, providers=["CPUExecutionProvider"]
    )


@pytest.mark.parametrize(
    "where", [[("written", True)], [("came", True), ("written", True), ("written", False)]]
)
def test_a_crash_that_is_ours_or_unavoidable_is_an_error(where, monkeypatch, tmp_path):
    crashes(monkeypatch, *where)
    with pytest.raises(
        ExportError, match=r"crashes while loading it \(SIGSEGV\); keep_float32 writes"
    ):
        train_and_save(tmp_path / "tuned.onnx")
    assert not (tmp_path / "tuned.onnx").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="processes end by numbers there")
def test_the_signal_is_named(monkeypatch):
    model = halves()
    assert trial.crash_of(model, optimised=False) == ""
    monkeypatch.setattr(trial, "_CHILD", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert trial.crash_of(model) == "SIGSEGV"


def test_a_model_that_is_refused_is_no_crash(monkeypatch):
    model = halves()
    model.graph.node[0].op_type = "Mystery"
    assert trial.crash_of(model) == ""
