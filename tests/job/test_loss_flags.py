"""--loss and --axis: where the classes are, and what is said when nobody can tell."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from job.problem import run

X = np.random.default_rng(2).normal(size=(24, 6)).astype(np.float32)
LABELS = np.random.default_rng(3).integers(0, 3, size=(24, 3))


@pytest.fixture
def square(folder):
    """[N, 3, 3]: classes in axis 1 or in axis 2."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 6] x) => (float[N, 3, 3] y) <int64[3] shape = {0, 3, 3}>
        { z = MatMul(x, w)  y = Reshape(z, shape) }""")
    w = np.random.default_rng(1).normal(size=(6, 9)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    onnx.save(model, "square.onnx")
    np.savez("s.npz", x=X, target=LABELS)
    return (X @ w).reshape(-1, 3, 3)


def cross_entropy(z, axis):
    z = np.moveaxis(z.astype(np.float64), axis, -1)
    p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    return -np.log(np.take_along_axis(p, LABELS[..., None], -1)).mean()


@pytest.mark.parametrize("axis", [1, 2])
def test_axis_says_where_the_classes_are(square, capsys, axis):
    code, out, _ = run(capsys, "eval", "square.onnx", "--data", "s.npz", "--axis", axis, "--json")
    assert code == 0
    assert f'"loss": {cross_entropy(square, axis):.4f}'[:-2] in out
    more = ("-o", "t.onnx", "--epochs", 1, "--axis", axis)
    assert run(capsys, "train", "square.onnx", "--data", "s.npz", *more)[0] == 0


def test_without_it_the_error_names_the_flag(square, capsys):
    code, _, err = run(capsys, "train", "square.onnx", "--data", "s.npz", "-o", "t.onnx")
    assert code == 2
    assert "may lie in axis 1 or 2" in err
    assert "--axis 1" in err


def test_axis_with_a_loss_that_has_none(square, capsys):
    more = ("-o", "t.onnx", "--loss", "mse", "--axis", 1)
    code, _, err = run(capsys, "train", "square.onnx", "--data", "s.npz", *more)
    assert code == 2
    assert "the loss mse does not have" in err


def test_the_axis_that_follows_from_the_labels_is_said(folder, capsys):
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 6] x) => (float[N, 3, 2] y) <int64[3] shape = {0, 3, 2}>
        { z = MatMul(x, w)  y = Reshape(z, shape) }""")
    w = np.random.default_rng(1).normal(size=(6, 6)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    onnx.save(model, "wide.onnx")
    np.savez("s.npz", x=X, target=LABELS[:, :2])
    more = ("-o", "t.onnx", "--epochs", 1, "--loss", "ce")
    code, out, _ = run(capsys, "train", "wide.onnx", "--data", "s.npz", *more)
    assert code == 0
    assert "taken from axis 1" in " ".join(out.split())
