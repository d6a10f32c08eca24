"""`onnxgrad federated`: the project it writes. What it does in Flower is in tests/live/test_flower.py."""

from __future__ import annotations

import ast
import sys

import numpy as np
import onnx
import pytest

import onnxgrad
from onnxgrad.cli import main
from onnxgrad.demo import models
from onnxgrad.flower import client, project, server
from onnxgrad.flower.client import client_app
from onnxgrad.flower.project import packed, unpacked


@pytest.fixture
def model(tmp_path):
    models.write("cnn", tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_the_command_writes_a_project(model, tmp_path, capsys):
    assert main(["federated", str(model), "-o", str(tmp_path / "my-app"), "--rounds", "7"]) == 0
    assert "README.md there says how" in capsys.readouterr().out
    folder = tmp_path / "my-app"
    text = (folder / "pyproject.toml").read_text()
    assert 'clientapp = "my_app.client_app:app"' in text
    assert "num-server-rounds = 7" in text
    for name in ("__init__", "client_app", "server_app"):
        source = (folder / "my_app" / f"{name}.py").read_text()
        ast.parse(source)
        assert "@" not in source.replace("@app.main()", "")
    carried = unpacked(folder / "my_app" / "model.json")
    assert onnx.load_from_string(carried).graph.node == onnx.load(model).graph.node
    assert main(["federated", str(model), "-o", str(folder)]) == 2
    assert "is there already: name another folder" in capsys.readouterr().err


def test_a_server_app_is_ten_lines_or_fewer(model, tmp_path):
    assert main(["federated", str(model), "-o", str(tmp_path / "app")]) == 0
    source = (tmp_path / "app" / "app" / "server_app.py").read_text()
    code = [
        n
        for n in ast.parse(source).body
        if not isinstance(n, (ast.Import, ast.ImportFrom, ast.Expr))
    ]
    assert (
        sum(n.end_lineno - n.lineno + 1 for n in code)
        + len(getattr(code[-1], "decorator_list", []))
        <= 10
    )


def test_a_large_model_stays_where_it_is(model, tmp_path, monkeypatch):
    monkeypatch.setattr(project, "MOST", 100)
    assert main(["federated", str(model), "-o", str(tmp_path / "app")]) == 0
    assert not (tmp_path / "app" / "app" / "model.json").exists()
    assert str(model) in (tmp_path / "app" / "app" / "__init__.py").read_text()


def test_what_is_no_model_is_refused(tmp_path):
    assert unpacked(_file(tmp_path, packed(b"abc"))) == b"abc"
    with pytest.raises(
        onnxgrad.FileError, match="holds no model, expected what onnxgrad federated writes"
    ):
        unpacked(_file(tmp_path, b"[1]"))


def _file(folder, text: bytes):
    (folder / "model.json").write_bytes(text)
    return folder / "model.json"


def test_without_flwr_it_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.setitem(sys.modules, "flwr.app", None)
    with pytest.raises(onnxgrad.ConfigError, match=r"pip install 'onnxgrad\[flower\]'"):
        client_app(model, data=lambda context: None, loss="cross_entropy")


def test_staying_near_is_the_gradient_of_the_proximal_term():
    """SGD: w ← w - lr·(g + mu·(w - w₀)); the first step is at w₀ and has no pull."""
    x, y = np.ones((4, 1, 8, 8), np.float32), np.zeros(4, np.int64)
    mu, lr, model = 0.5, 0.1, models.cnn()
    free = onnxgrad.Trainer(model, "cross_entropy", "sgd", lr, threads=1)
    held = onnxgrad.Trainer(model, "cross_entropy", "sgd", lr, threads=1)
    start = held.get_weights(flat=True)
    held.stay_near(mu)
    for trainer in (free, held):
        trainer.step(x, y)
    one = free.get_weights(flat=True)
    np.testing.assert_array_equal(one, held.get_weights(flat=True))
    for trainer in (free, held):
        trainer.step(x, y)
    expected = free.get_weights(flat=True) - lr * mu * (one - start)
    np.testing.assert_allclose(held.get_weights(flat=True), expected, atol=1e-7)
    held.stay_near(0.0)
    with pytest.raises(ValueError, match="strength is -1"):
        held.stay_near(-1)


@pytest.mark.parametrize(
    ("folder", "package"),
    [
        ("3d-models", "app_3d_models"),
        ("a1", "a1"),
        ("My App", "my_app"),
        ("---", "federated"),
        ("x3", "x3"),
    ],
)
def test_the_name_of_the_package(folder, package, tmp_path):
    files = project.scaffold(tmp_path / folder, b"bytes", "m.onnx", "mse", 3)
    assert tmp_path / folder / package / "client_app.py" in files
    assert unpacked(tmp_path / folder / package / "model.json") == b"bytes"


def test_rows_are_counted_in_one_target_or_the_first_of_several():
    assert client._count(np.zeros((5, 2))) == 5
    assert client._count({"a": np.zeros(4), "b": np.zeros((4, 3))}) == 4


def test_the_first_names_of_many():
    assert server.few([]) == ""
    assert server.few(["a", "b"]) == "'a', 'b'"
    assert server.few([*"abcd"]) == "'a', 'b', 'c', 'd'"
    assert server.few([*"abcde"]) == "'a', 'b', 'c', 'd' …"
