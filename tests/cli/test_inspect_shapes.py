"""`inspect --shape`: sizes that a model leaves open."""

from __future__ import annotations

import json

import onnx
import pytest
from model import merged_models as models

import onnxgrad
from onnxgrad.cli import main


@pytest.fixture
def path(tmp_path):
    nodes = [models.node("MatMul", "x w", "y")]
    model = models.model(nodes, {"w": models.normal(4, 3)}, x=("N", "T", 4), y=("N", "T", 3))
    onnx.save(model, tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def test_the_sizes_count(path, capsys):
    main(["inspect", path, "--json", "--no-runtime", "--shape", "x=2,50,4"])
    cost = json.loads(capsys.readouterr().out)["cost"]
    assert cost["forward_flops"] == 2 * 2 * 50 * 4 * 3
    assert cost["assumed"] == {"N": 2, "T": 50}


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ("x=2,50,5", "input 'x' has shape [N, T, 4], and shapes gives [2, 50, 5]"),
        ("x=2,50", "input 'x' has shape [N, T, 4], and shapes gives [2, 50]"),
        ("z=2", "shapes names the input 'z'; the inputs are 'x'"),
        ("x=2,a", "'x=2,a' is not the name of an input and its sizes, as in x=8,3,320,320"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(path, shape, text, capsys):
    try:
        code = main(["inspect", path, "--no-runtime", "--shape", shape])
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert text in " ".join(capsys.readouterr().err.split())


def test_sizes_of_a_reshape_that_a_run_works_out_are_known():
    nodes = [
        models.node("Shape", "x", "n", end=1),
        models.node("Concat", "n rest", "to", axis=0),
        models.node("Reshape", "x to", "r"),
        models.node("MatMul", "r w", "y"),
    ]
    tensors = {"rest": models.np.array([6, 4], "int64"), "w": models.normal(4, 3)}
    model = models.model(nodes, tensors, x=("N", 24), y=("N", 6, 3))
    assert onnxgrad.inspect(model, batch=5).cost.forward_flops >= 2 * 5 * 6 * 4 * 3
