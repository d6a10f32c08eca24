"""Arguments of `onnxgrad.session` and `onnxgrad.register` that cannot be: one sentence of ours for each."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from ort_models import node_model

import onnxgrad
from onnxgrad.contracts import contracts
from onnxgrad.errors import ModelError


@pytest.fixture
def model() -> onnx.ModelProto:
    arrays = {"dY": np.float32([1, 2]), "X": np.float32([-1, 1])}
    return node_model(contracts()["ReluGrad"], arrays, {}, ("dX",))


@pytest.mark.parametrize("threads", [-1, True, 1.5, "2", 2**40], ids=repr)
def test_threads_that_cannot_be(model, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 3
    with pytest.raises(onnxgrad.ContractError) as caught:
        onnxgrad.session(model, options, threads=threads)
    assert str(caught.value).startswith(
        f"session: threads is {threads!r}, expected an integer from 0 to 1024"
    )
    assert options.intra_op_num_threads == 3


@pytest.mark.parametrize(
    ("threads", "expected"), [(None, 3), (0, 0), (2, 2), (np.int64(2), 2)], ids=repr
)
def test_threads_are_set_in_the_options_of_the_caller(model, threads, expected):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 3
    onnxgrad.session(model, options, threads=threads)
    assert options.intra_op_num_threads == expected


@pytest.mark.parametrize("options", ["x", 0, False, {}], ids=repr)
def test_options_of_another_type(model, options):
    sentence = f"options is {options!r}, expected an onnxruntime.SessionOptions"
    with pytest.raises(onnxgrad.ContractError) as caught:
        onnxgrad.session(model, options)
    assert str(caught.value) == f"session: {sentence}"
    with pytest.raises(onnxgrad.ContractError) as caught:
        onnxgrad.register(options)
    assert str(caught.value) == f"register: session_{sentence}"


def test_register_without_options():
    with pytest.raises(onnxgrad.ContractError, match="session_options is None, expected"):
        onnxgrad.register(None)


@pytest.mark.parametrize("name", ["foo", "thread", "sess_options"])
def test_a_keyword_that_nobody_takes(model, name):
    with pytest.raises(TypeError, match=f"unknown keyword '{name}', expected options, threads, "):
        onnxgrad.session(model, **{name: 1})


@pytest.mark.parametrize(
    "keywords",
    [
        {"providers": ["CPUExecutionProvider"], "provider_options": [{}]},
        {"enable_fallback": 0},
        {"disabled_optimizers": ["ConstantFolding"]},
        {"read_config_from_model": 0},
    ],
    ids=" ".join,
)
def test_the_keywords_of_inference_session_pass(model, keywords):
    onnxgrad.session(model, **keywords)


def test_options_in_which_the_library_was_registered_by_hand(model):
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(onnxgrad.library_path())
    with pytest.raises(onnxgrad.ContractError, match=r"twice.*make new options and leave that"):
        onnxgrad.session(model, options)


def test_an_empty_path():
    with pytest.raises(ModelError, match="model is an empty string, expected the path"):
        onnxgrad.session("")
