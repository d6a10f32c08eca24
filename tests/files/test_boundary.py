"""The boundary: what libraries raise becomes one of our errors, what we raise stays, the rest is a bug and says so."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest

import onnxgrad.__main__
from onnxgrad import Trainer, inspect, vjp
from onnxgrad.cli import main
from onnxgrad.cli.texts import Console, plain
from onnxgrad.errors import InternalError, ModelError, OnnxGradError, OutOfMemoryError
from onnxgrad.files.boundary import boundary, bug, first_line, guarded


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


@pytest.mark.parametrize("words", ["std::bad_alloc", "a.so: failed to map segment from shared object",
                                   "a.so: cannot allocate memory in static TLS block"])  # fmt: skip
def test_words_of_a_system_without_memory(words):
    with pytest.raises(OutOfMemoryError), boundary():
        raise ImportError(words)


def test_an_import_that_ends_without_memory_says_anything(monkeypatch):
    monkeypatch.setattr("onnxgrad.files.system.memory_is_short", lambda: True)
    with pytest.raises(OutOfMemoryError), boundary():
        raise SystemError("error return without exception set")
    with pytest.raises(InternalError), boundary():  # any other error is what it says
        {}["x"]
    monkeypatch.undo()
    with pytest.raises(InternalError), boundary():
        raise SystemError("error return without exception set")


def test_so_little_memory_that_not_even_a_sentence_can_be_made(monkeypatch, capfd):
    def nothing_left(*_):
        raise MemoryError

    monkeypatch.setattr("onnxgrad.cli.main", nothing_left)
    monkeypatch.setattr("os._exit", lambda code: sys.exit(code))
    with pytest.raises(SystemExit) as ended:
        onnxgrad.__main__.main()
    assert ended.value.code == 2
    assert capfd.readouterr().err == "onnxgrad: not enough memory\n"


def test_what_is_left_is_a_bug():
    with (
        pytest.raises(InternalError, match=r"a bug in onnxgrad \(KeyError: 'x'; .*line \d+\)"),
        boundary(),
    ):
        {}["x"]


def test_ctrl_c_in_disguise_is_ctrl_c():
    """A module of C++ that is interrupted while it loads raises ImportError from KeyboardInterrupt."""
    with pytest.raises(KeyboardInterrupt), boundary():
        raise ImportError("initialization failed") from KeyboardInterrupt()


def good(body: str = "y = MatMul(x, w)") -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 3] x) => (float[N, 2] y) <float[3, 2] w = {{1, 2, 3, 4, 5, 6}}> {{ {body} }}""")


@guarded
def stumbles(*_, **__):
    raise KeyError("x")


def test_a_malformed_model_is_looked_for_in_every_argument(tmp_path):
    """What nobody foresaw is the model's fault where ONNX's checker says so, wherever the model was given."""
    bad = good("y = MatMul(x, nobody)")
    onnx.save(bad, tmp_path / "bad.onnx")
    data = bad.SerializeToString()
    path = str(tmp_path / "bad.onnx")
    for arguments, named, name in (
        ((path,), {}, path), ((data,), {}, "the model"), ((bad,), {}, "the model"), ((1, bad), {}, "the model"),
        ((), {"model": bad}, "the model"), ((good(),), {"model": path}, path),
    ):  # fmt: skip
        with pytest.raises(ModelError) as caught:
            stumbles(*arguments, **named)
        assert str(caught.value).startswith(f"{name} is not a valid ONNX model: "), arguments
    for arguments in ((good(),), (1, 2, bad), ()):
        with pytest.raises(InternalError, match=r"^the model: this is a bug"):
            stumbles(*arguments)


def test_a_trainer_stands_for_its_file(tmp_path):
    onnx.save(good(), tmp_path / "net.onnx")
    trainer = Trainer(tmp_path / "net.onnx", loss="mse")
    with pytest.raises(InternalError, match=r"net\.onnx: this is a bug in onnxgrad \(KeyError"):
        stumbles(trainer)


@pytest.mark.parametrize(
    "text", ["std::bad_alloc", "Failed to allocate memory for requested buffer", "bad allocation"]
)
def test_what_libraries_say_without_memory(text):
    with (
        pytest.raises(OutOfMemoryError, match=r"^net\.onnx: not enough memory: "),
        boundary("net.onnx"),
    ):
        raise RuntimeError(text)


def test_a_value_error_of_somebody_else_is_not_ours():
    """Only what a `raise` of onnxgrad's own says is meant for the caller."""
    with pytest.raises(InternalError, match="ValueError: invalid literal"), boundary():
        int("one")


def test_a_bug_is_named_by_its_file_and_line():
    for file, shown in (("other.py", "other.py"), ("/usr/lib/onnxgrad/train/x.py", "train/x.py")):
        with pytest.raises(ZeroDivisionError) as caught:
            exec(compile("\n1 / 0", file, "exec"))
        caught.value.__traceback__ = caught.value.__traceback__.tb_next
        said = bug(caught.value)
        assert said.startswith(
            f"this is a bug in onnxgrad (ZeroDivisionError: division by zero; {shown}, line 2). "
        )


def test_the_first_line_of_a_library():
    text = (
        "[ONNXRuntimeError] : 1 : FAIL : /a/onnxruntime/core/x.cc:12 void f(int) no \x1b such\nmore"
    )
    assert first_line(text) == "no � such"
    assert first_line("") == "str"
    assert len(first_line("a" * 600)) == 500


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


def first_on_the_path(folder) -> dict[str, str]:
    found = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(found)}


def test_an_interruption_while_it_loads_is_a_sentence(tmp_path):
    """The signal comes from inside the import, at the worst moment."""
    (tmp_path / "rich.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [sys.executable, "-m", "onnxgrad", "ops"], capture_output=True, text=True,
        env=first_on_the_path(tmp_path),
    )  # fmt: skip
    assert done.returncode == 130
    assert done.stderr == "onnxgrad: interrupted\n"


def test_a_library_that_cannot_be_loaded_is_a_sentence(tmp_path):
    (tmp_path / "rich.py").write_text("raise ImportError('failed to map segment')\n")
    done = subprocess.run(
        [sys.executable, "-m", "onnxgrad", "ops"], capture_output=True, text=True,
        env=first_on_the_path(tmp_path),
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
