"""What editors, type checkers and `import onnxgrad` see."""

from __future__ import annotations

import ast
import inspect
import threading
from importlib import resources

import numpy as np
import onnx
import pytest

import onnxgrad
from onnxgrad import errors, kernels
from onnxgrad.contracts import contracts

LINE = """
    <ir_version: 8, opset_import: ["" : 17]>
    line (float[N, 2] x) => (float[N, 1] y) <float[2, 1] w = {1, -1}> { y = MatMul(x, w) }
"""


def test_the_package_says_that_it_has_types():
    assert resources.files("onnxgrad").joinpath("py.typed").is_file()


def stub() -> dict[str, ast.FunctionDef]:
    text = resources.files("onnxgrad").joinpath("kernels.pyi").read_text()
    return {n.name: n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)}


@pytest.mark.parametrize("name", sorted(c.python_name for c in contracts().values()))
def test_the_stub_has_the_signature_of_every_kernel(name):
    """tests/test_docs.py runs the generator; this compares its work with the functions themselves."""
    arguments = stub()[name].args
    said = [a.arg for a in (*arguments.args, *arguments.kwonlyargs)]
    assert said == list(inspect.signature(getattr(kernels, name)).parameters)


def test_every_error_is_public():
    classes = [n for n, c in vars(errors).items() if inspect.isclass(c)]
    assert {"DataError", "DivergedError", "ConfigError"} <= set(classes)
    for name in classes:
        assert getattr(onnxgrad, name) is getattr(errors, name)
        assert name in onnxgrad.__all__


def test_errors_say_what_they_are_about():
    diverged, parallel = errors.DivergedError("too large"), errors.ParallelError("gone")
    assert (str(diverged), diverged.tensor, diverged.step) == ("too large", "", 0)
    assert (str(parallel), parallel.rank) == ("gone", 0)
    assert errors.DivergedError("too large", "w", 3).step == 3
    assert errors.ParallelError("gone", 2).rank == 2


@pytest.mark.parametrize(
    "name", ["train", "losses", "optimizers", "schedules", "metrics", "callbacks", "errors"]
)
def test_modules_are_attributes(name):
    module = getattr(onnxgrad, name)
    assert inspect.ismodule(module)
    assert name in dir(onnxgrad)
    assert onnxgrad.losses.MSE is onnxgrad.train.losses.MSE


@pytest.mark.parametrize("function", [onnxgrad.rule, onnxgrad.fused])
def test_rules_have_their_real_signature(function):
    names = list(inspect.signature(function).parameters)
    options = ["since", "domain", "broadcast", "wrt", "stop", "inputs", "outputs"]
    assert names == ["op_types", *options, "by_input"]


def test_a_wrong_keyword_of_session_is_a_type_error():
    with pytest.raises(TypeError, match="session: unknown keyword 'provider', expected options"):
        onnxgrad.session(onnx.parser.parse_model(LINE), provider=["CPUExecutionProvider"])


def test_the_threads_of_a_trainer_are_its_own():
    before = onnxgrad.get_num_threads()
    x = np.ones((4, 2), np.float32)
    trainer = onnxgrad.Trainer(onnx.parser.parse_model(LINE), loss="mse", threads=1)
    trainer.step(x, x[:, :1])
    assert onnxgrad.get_num_threads() == before
    with pytest.raises(ValueError, match="threads is 0, expected an integer from 1 to 1024"):
        onnxgrad.Trainer(onnx.parser.parse_model(LINE), loss="mse", threads=0)


def test_a_limit_of_threads_is_of_the_calling_thread_and_ends():
    """The kernels give the same bits under it, and another thread has no limit."""
    x = np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32)
    free = kernels.softmax_grad_13(x, x)
    seen = []
    with kernels.at_most(1):
        np.testing.assert_array_equal(kernels.softmax_grad_13(x, x), free)
        other = threading.Thread(
            target=lambda: seen.append(onnxgrad.kernels._native.limit_threads(0))
        )
        other.start()
        other.join()
        assert seen == [0]
        assert kernels._native.limit_threads(1) == 1
    assert kernels._native.limit_threads(0) == 0
