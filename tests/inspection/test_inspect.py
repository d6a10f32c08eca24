"""`onnxgrad inspect`, `check` and `grad`: the right report for good models and for every planted fault."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from places import DOCS
from small_models import RNG, mlp, model_of, run, weights, with_node

from onnxgrad.inspection import inspect
from onnxgrad.inspection import probe as probing

# ---- inspect


def test_a_good_model():
    report = inspect(mlp())
    assert report.trainable
    assert [(p.name, p.layer, p.size, p.trainable) for p in report.parameters] == [
        ("layer1.weight", "layer1", 32, True),
        ("layer1.bias", "layer1", 8, True),
        ("layer2.weight", "layer2", 16, True),
    ]
    assert report.guess.task == "classification"
    assert report.cost.forward_flops == 2 * 8 * 4 + 8 + 8 + 2 * 2 * 8
    assert report.cost.parameter_bytes == 4 * 56
    assert report.obstacles == []


def test_the_screen(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    path = tmp_path / "mlp.onnx"
    onnx.save(mlp(), path)
    code, out, err = run(capsys, "inspect", path, "--batch", 32)
    assert (code, err) == (0, "")
    assert "input   x  float  N × 4" in out
    assert "layer1        2       40  yes" in out
    assert "trainable: 56 of 56 numbers" in out
    assert "\x1b" not in out  # plain when it is not a terminal
    assert max(map(len, out.splitlines())) <= 80


def test_json_has_the_documented_keys(tmp_path, capsys):
    path = tmp_path / "mlp.onnx"
    onnx.save(mlp(), path)
    code, out, _ = run(capsys, "inspect", path, "--json")
    data = json.loads(out)
    assert code == 0
    assert data["trainable"] is True
    assert data["onnxruntime"] == {"loads": True, "text": ""}
    page = (DOCS / "inspect.md").read_text()
    assert [key for key in data if f"`{key}`" not in page] == []


FAULTS = [
    (
        "an unknown operator",
        lambda: with_node("Mystery", "my.domain"),
        "my.domain.Mystery",
        "has no gradient rule yet",
    ),
    (
        "NonMaxSuppression before the outputs",
        lambda: with_nms(),
        "NonMaxSuppression",
        "no useful derivative",
    ),
    ("inside of a Loop", lambda: with_loop(), "Bernoulli", "draws a random sample"),
]


def with_nms() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["boxes"]),
        helper.make_node("NonMaxSuppression", ["boxes", "scores"], ["kept"], name="select"),
        helper.make_node("Cast", ["kept"], ["y"], to=TensorProto.FLOAT),
    ]
    inputs = (("x", [1, 5, 4]), ("scores", [1, 1, 5]))
    return model_of(nodes, weights(w=np.ones(4)), inputs=inputs, outputs=(("y", [None, 3]),))


def with_loop() -> onnx.ModelProto:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("Mul", ["h", "w"], ["m"]),
            helper.make_node("Bernoulli", ["m"], ["h2"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("h", TensorProto.FLOAT, [None, 4]),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("h2", TensorProto.FLOAT, [None, 4]),
        ],
    )
    start = [
        numpy_helper.from_array(np.array(3), "count"),
        numpy_helper.from_array(np.array(True), "yes"),
    ]
    nodes = [helper.make_node("Loop", ["count", "yes", "x"], ["y"], body=body, name="repeat")]
    return model_of(nodes, [*start, *weights(w=np.ones(4))], outputs=(("y", [None, 4]),))


@pytest.mark.parametrize(
    ("title", "build", "operator", "because"), FAULTS, ids=[f[0] for f in FAULTS]
)
def test_every_obstacle_is_named_with_a_way_out(title, build, operator, because):
    report = inspect(build())
    (obstacle,) = report.obstacles
    assert obstacle.operator == operator
    assert because in obstacle.because
    assert obstacle.instead
    assert obstacle.path[-1] == "output 'y'"


def test_all_obstacles_at_once():
    model = mlp()
    model.graph.node[2].CopyFrom(helper.make_node("Mystery", ["b"], ["c"], name="one", domain="d"))
    model.graph.node.append(helper.make_node("Riddle", ["y"], ["z"], name="two", domain="d"))
    model.graph.output[0].name = "z"
    model.opset_import.append(helper.make_opsetid("d", 1))
    assert [o.node for o in inspect(model).obstacles] == ["one", "two"]


def test_partly_trainable_when_some_parameters_come_after_the_obstacle():
    report = inspect(with_node("Mystery", "d"))
    assert report.trainable
    assert [p.trainable for p in report.parameters] == [False, False, True]
    assert "'culprit' (Mystery)" in report.parameters[0].why


def test_an_integer_model_is_not_trainable(tmp_path, capsys):
    w = numpy_helper.from_array(RNG.integers(-5, 5, (4, 2)).astype(np.int8), "w")
    nodes = [helper.make_node("MatMulInteger", ["x", "w"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.INT8, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["N", 2])], [w],
    )  # fmt: skip
    path = tmp_path / "int8.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    code, out, _ = run(capsys, "inspect", path, "--no-runtime")
    assert code == 3
    assert "1 weight is of an integer type (first: 'w')" in " ".join(out.split())


# ---- files that hold no model


def missing_external(tmp_path):
    path = tmp_path / "big.onnx"
    onnx.save(mlp(), path, save_as_external_data=True, location="big.bin", size_threshold=0)
    (tmp_path / "big.bin").unlink()
    return path


def truncated(tmp_path):
    path = tmp_path / "cut.onnx"
    path.write_bytes(mlp().SerializeToString()[:-150])
    return path


def cyclic(tmp_path):
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    path = tmp_path / "loop.onnx"
    path.write_bytes(model_of(nodes, []).SerializeToString())
    return path


def written(name, data):
    def write(tmp_path):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


UNREADABLE = [
    ("a missing file", lambda t: t / "nothing.onnx", "no such file"),
    ("a folder", lambda t: t, "is a folder, expected an ONNX file"),
    ("an empty file", written("empty.onnx", b""), "is empty, expected an ONNX model"),
    ("a text", written("text.onnx", b"hello, this is not a model at all\n" * 10), "no ONNX model"),
    (
        "a picture",
        written("picture.onnx", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4),
        "no ONNX model",
    ),
    ("a truncated file", truncated, ""),
    ("a cycle", cyclic, "has a cycle"),
    ("missing external data", missing_external, "big.bin is missing"),
]


@pytest.mark.parametrize("command", ["inspect", "check", "grad"])
@pytest.mark.parametrize(("title", "make", "text"), UNREADABLE, ids=[u[0] for u in UNREADABLE])
def test_what_cannot_be_read_gives_one_sentence(title, make, text, command, tmp_path, capsys):
    more = ["-o", tmp_path / "g.onnx"] if command == "grad" else []
    code, _, err = run(capsys, command, make(tmp_path), *more)
    assert code == 2
    assert err.startswith("onnxgrad: ")
    assert text in err
    assert "Traceback" not in err
    assert not (tmp_path / "g.onnx").exists()


def test_a_crash_of_the_runtime_is_reported(tmp_path, monkeypatch, capsys):
    """The child is made to end as a crash of onnxruntime would end it."""
    path = tmp_path / "mlp.onnx"
    onnx.save(mlp(), path)
    assert probing.probe(path) == probing.Verdict(True, "")
    real = subprocess.Popen

    def crashing(command, **options):
        return real(
            [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"],
            **options,
        )

    monkeypatch.setattr(probing.subprocess, "Popen", crashing)
    text = "onnxruntime crashed while loading it (SIGSEGV)"
    assert probing.probe(path) == probing.Verdict(False, text, crashed=True)
    assert text in run(capsys, "inspect", path)[1]
    code, _, err = run(capsys, "check", path)
    assert code == 2
    assert err == f"onnxgrad: {path}: {text}\n"


# ---- grad


def test_grad_writes_a_model_that_runs(tmp_path, capsys):
    path, target = tmp_path / "mlp.onnx", tmp_path / "g.onnx"
    onnx.save(mlp(), path)
    code, out, _ = run(capsys, "grad", path, "--wrt", "x", "-o", target, "--standard-ops")
    assert code == 0
    assert "feed the cotangent of 'y' as input y_grad" in out
    import onnxruntime

    session = onnxruntime.InferenceSession(target)  # stock, without our library
    assert [o.name for o in session.get_outputs()] == ["y", "x_grad"]


def test_grad_refuses_with_exit_code_3(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    onnx.save(with_node("Mystery", "d"), path)
    code, _, err = run(capsys, "grad", path, "-o", tmp_path / "g.onnx")
    assert code == 3
    assert "node 'culprit' (d.Mystery): has no gradient rule yet" in err


def test_version_names_what_matters():
    done = subprocess.run(
        [sys.executable, "-m", "onnxgrad", "--version"], capture_output=True, text=True, check=True
    )
    for name in ("onnxgrad", "onnxruntime", "onnx ", "onnx-ir", "numpy", "Python"):
        assert name in done.stdout
