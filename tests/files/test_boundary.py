"""The boundary: what libraries raise becomes one of our errors, what we raise stays, the rest is a bug and says so."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest

from onnxgrad import Trainer, inspect, vjp
from onnxgrad.cli import main
from onnxgrad.cli.texts import Console, plain
from onnxgrad.errors import InternalError, ModelError, OnnxGradError, OutOfMemoryError
from onnxgrad.files.boundary import boundary


def test_errors_of_libraries():
    with pytest.raises(ModelError, match="the model: onnx refuses it: "), boundary():
        onnx.checker.check_model(onnx.ModelProto())
    with pytest.raises(ModelError, match="protobuf refuses it"), boundary():
        onnx.ModelProto.FromString(b"hello")


def test_our_own_stay_as_they_are():
    with pytest.raises(ValueError, match="expected") as caught:
        Trainer(good(), loss="nothing like it")
    assert not isinstance(caught.value, InternalError)


def test_memory_and_depth():
    with pytest.raises(OutOfMemoryError), boundary():
        raise MemoryError
    with pytest.raises(ModelError, match="nested deeper"), boundary():
        raise RecursionError("maximum recursion depth exceeded")


def test_what_is_left_is_a_bug():
    with (
        pytest.raises(InternalError, match=r"a bug in onnxgrad \(KeyError: 'x'; .*line \d+\)"),
        boundary(),
    ):
        {}["x"]


def good(body: str = "y = MatMul(x, w)") -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 3] x) => (float[N, 2] y) <float[3, 2] w = {{1, 2, 3, 4, 5, 6}}> {{ {body} }}""")


def test_a_run_that_onnxruntime_refuses():
    body = "i = Constant<value = int64[1] {9}>()  g = Gather(w, i)  h = MatMul(x, w)  y = Add(h, g)"
    trainer = Trainer(good(body), loss="mse")
    with pytest.raises(ModelError, match=r"onnxruntime refuses it: .*out of data bounds"):
        trainer.step(np.ones((4, 3), np.float32), np.ones((4, 2), np.float32))


@pytest.mark.parametrize("use", [inspect, vjp, lambda m: Trainer(m, loss="mse")])
def test_bytes_that_are_no_model(use):
    with pytest.raises(OnnxGradError):
        use(b"\x08\x08:\xff")


def test_a_command_never_shows_a_traceback(monkeypatch, capsys):
    def broken(*_):
        raise AttributeError("no such thing")

    monkeypatch.setattr("onnxgrad.inspection.reading.read_ir", broken)
    assert main(["inspect", "m.onnx"]) == 70
    error = capsys.readouterr().err
    assert "this is a bug in onnxgrad (AttributeError: no such thing" in error
    assert "Traceback" not in error


def test_names_cannot_move_the_cursor(capsys):
    Console(force_terminal=True, width=60).print("a\x1b[2Jb\x9bc[bold]d[/bold]", style="red")
    out = capsys.readouterr().out
    assert "\x1b[2J" not in out
    assert "\x9b" not in out
    assert "\x1b[31m" in out  # rich's own are kept
    assert plain("one\ntwo\x07") == "one\ntwo�"


def test_an_interruption_while_it_loads_is_a_sentence(tmp_path):
    """The signal comes from inside the import, at the worst moment."""
    (tmp_path / "rich.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [sys.executable, "-m", "onnxgrad", "ops"], capture_output=True, text=True,
        env={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 130
    assert done.stderr == "onnxgrad: interrupted\n"


def test_a_library_that_cannot_be_loaded_is_a_sentence(tmp_path):
    (tmp_path / "rich.py").write_text("raise ImportError('failed to map segment')\n")
    done = subprocess.run(
        [sys.executable, "-m", "onnxgrad", "ops"], capture_output=True, text=True,
        env={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "onnxgrad could not be loaded: failed to map segment\n"


def test_weights_of_nan_are_looked_at():
    """Found by fuzz/files: a mark with NaN in it is never found again."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 8] x) => (float[N, 8] y) <float[8, 8] w> { y = MatMul(x, w) }""")
    weights = np.full((8, 8), np.nan, np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    assert inspect(model.SerializeToString()).parameters
