"""`onnxgrad check`: right gradients pass, wrong ones fail, and the operator to blame is named."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from small_models import RNG, mlp, run

import onnxgrad
from onnxgrad.checking import check_gradients
from onnxgrad.checking.problem import SINGLE, Problem


def test_check_passes_on_right_gradients(tmp_path, capsys):
    path = tmp_path / "mlp.onnx"
    onnx.save(mlp(), path)
    code, out, err = run(capsys, "check", path)
    assert (code, err) == (0, "")
    assert "right: 3 gradients, checked in double" in out


def test_check_takes_data(tmp_path, capsys):
    path, data = tmp_path / "mlp.onnx", tmp_path / "d.npz"
    onnx.save(mlp(), path)
    np.savez(data, x=RNG.normal(size=(5, 4)))
    assert run(capsys, "check", path, "--data", data)[0] == 0
    np.savez(data, z=np.ones(3))
    code, _, err = run(capsys, "check", path, "--data", data)
    assert code == 2
    assert "has no array 'x' for that input of the model; it has z" in err


def test_check_names_the_operator_whose_rule_is_broken(tmp_path, capsys, monkeypatch):
    from onnxgrad.autodiff.rule import FUSED, STANDARD

    for table in (STANDARD, FUSED):
        monkeypatch.delitem(table, ("", "Tanh"), raising=False)
    onnxgrad.rule("Tanh", input=lambda op, output, doutput: op.Mul(doutput, output))
    try:
        result = check_gradients(mlp())
    finally:
        STANDARD.pop(("", "Tanh"), None)
    assert not result.good
    assert [r.parameter for r in result.rows if r.good] == ["layer2.weight"]
    assert result.culprit == "node 'squash' (Tanh)"


@pytest.mark.parametrize(
    ("factor", "good"), [(1, True), (1.001, False), (0.99, False), (1.00001, True)]
)
def test_check_sees_a_gradient_that_is_a_thousandth_too_long(factor, good, monkeypatch):
    """In double: the promise is a ten-thousandth."""
    from onnxgrad.autodiff.rule import FUSED, STANDARD

    for table in (STANDARD, FUSED):
        monkeypatch.delitem(table, ("", "Tanh"), raising=False)

    def tanh(op, output, doutput):
        return op.Mul(doutput, op.Mul(op.Sub(1.0, op.Mul(output, output)), factor))

    onnxgrad.rule("Tanh", input=tanh)
    try:
        result = check_gradients(mlp())
    finally:
        STANDARD.pop(("", "Tanh"), None)
    assert result.precision == "double"
    assert result.good is good


@pytest.mark.parametrize(("factor", "good"), [(1, True), (1.1, False)])
def test_check_sees_a_tenth_too_much_in_float(factor, good):
    """Where neither onnxruntime nor the reference computes in double, the promise is three hundredths."""
    problem = Problem(ir.from_proto(mlp()), {"x": np.ones((2, 4), np.float32)}, SINGLE, 0)
    for name, gradient in problem.gradients.items():
        problem.gradients[name] = gradient * factor
    assert all(problem.row(name, 2).good is good for name in problem.parameters)


def test_check_judges_convolutions_in_double_and_names_the_operator_beside_a_kink(monkeypatch):
    """onnxruntime has no double Conv; MaxPool after Relu reads equal zeros, and is not to blame."""
    from onnxgrad.autodiff.rule import FUSED, STANDARD
    from onnxgrad.demo import models

    right = check_gradients(models.cnn())
    assert right.good
    assert right.precision == "float, against differences in double"
    assert max(row.error for row in right.rows) < 1e-5
    for table in (STANDARD, FUSED):
        monkeypatch.delitem(table, ("", "Relu"), raising=False)
    onnxgrad.rule("Relu", X=lambda op, Y, dY: op.Mul(dY, Y))
    try:
        wrong = check_gradients(models.cnn())
    finally:
        STANDARD.pop(("", "Relu"), None)
    assert not wrong.good
    assert wrong.culprit == "node 'Relu_6' (Relu)"


def test_a_gradient_that_is_zero_but_for_rounding_is_right():
    from onnxgrad.demo import models

    result = check_gradients(models.transformer())  # the bias of a key shifts all scores alike
    assert result.good
    assert max(row.error for row in result.rows) < 1e-4


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"x": np.full((2, 4), np.nan)}, "holds a number that is not finite at [0, 0]"),
        ({"x": np.zeros((0, 4))}, "has shape [0, 4], expected some numbers"),
    ],
    ids=["NaN", "empty"],
)
def test_check_refuses_data_that_prove_nothing(arrays, text, tmp_path, capsys):
    path, data = tmp_path / "mlp.onnx", tmp_path / "d.npz"
    onnx.save(mlp(), path)
    np.savez(data, **arrays)
    code, _, err = run(capsys, "check", path, "--data", data)
    assert code == 2
    assert text in err
