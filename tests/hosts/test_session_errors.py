"""Arguments of `onnxgrad.session` and `onnxgrad.register` that cannot be: one sentence of ours for each."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from ort_models import node_model

import onnxgrad
from onnxgrad.contracts import contracts
from onnxgrad.errors import ContractError, ModelError
from onnxgrad.ort import check_attributes


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


MISSPELT = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    net (float[2] x, bool c) => (float[2] y) { BODY }"""
LEAKY = "LeakyReluGrad<alfa = 0.1>(x, x)"


@pytest.mark.parametrize("form", ["message", "bytes", "path"])
@pytest.mark.parametrize("place", ["graph", "body"])
def test_an_attribute_that_the_operator_does_not_have(form, place, tmp_path):
    """onnxruntime would leave it out without a word."""
    body = f"y = com.microsoft.{LEAKY}"
    if place == "body":
        body = f"y = If(c) <then_branch = a () => (float[2] p) {{ p = com.microsoft.{LEAKY} }}, " \
               "else_branch = b () => (float[2] q) { q = Relu(x) }>"  # fmt: skip
    proto = onnx.parser.parse_model(MISSPELT.replace("BODY", body))
    onnx.save(proto, tmp_path / "m.onnx")
    given = {"message": proto, "bytes": proto.SerializeToString(), "path": tmp_path / "m.onnx"}[
        form
    ]
    with pytest.raises(
        ContractError, match=r"LeakyReluGrad: unknown attribute 'alfa', expected alpha \(node ''\)"
    ):
        onnxgrad.session(given)


def test_other_operators_may_have_any_attribute():
    """Ours alone are looked at: one of ONNX with the name of one of ours, and one of theirs in our domain."""
    proto = onnx.parser.parse_model(
        MISSPELT.replace("BODY", "y = com.microsoft.QuickGelu<alpha = 0.5>(x)")
    )
    assert onnxgrad.session(proto).run(None, {"x": np.ones(2, np.float32), "c": np.array(True)})[
        0
    ].shape == (2,)
    foreign = onnx.parser.parse_model(
        MISSPELT.replace("BODY", "y = other.ReluGrad<alfa = 0.1>(x, x)")
    )
    check_attributes(foreign)
