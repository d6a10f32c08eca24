"""Training models in plain sessions: the formulas of gradient operators that travel in the files."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from dropin.helpers import LABELS, NAMES, X, arrays_of, classifier, make, reference
from onnx import helper

import onnxgrad
from onnxgrad.dropin.old.fallbacks import FORMULAS
from onnxgrad.dropin.old.functions import add_functions

RANDOM = np.random.RandomState(2)
A, B = (
    RANDOM.standard_normal((4, 5)).astype(np.float32),
    RANDOM.standard_normal((4, 5)).astype(np.float32),
)
P = (np.exp(B) / np.exp(B).sum(1, keepdims=True)).astype(np.float32)
SLOPE, LABEL = np.array(0.7, np.float32), np.array([0, 4, 2, 1])
CASES = {
    "ReluGrad": ([A, B], {}),
    "LeakyReluGrad": ([A, B], {"alpha": 0.3}),
    "SigmoidGrad": ([A, P], {}),
    "TanhGrad": ([A, P], {}),
    "SoftmaxGrad_13": ([A, P], {"axis": 1}),
    "LogSoftmaxGrad_13": ([A, np.log(P)], {"axis": -1}),
    "SoftmaxCrossEntropyLossInternal": ([B, LABEL], {"reduction": "mean"}),
    "SoftmaxCrossEntropyLossGrad": ([SLOPE, np.log(P), LABEL], {"reduction": "mean"}),
    "SoftmaxCrossEntropyLossInternalGrad": ([SLOPE, np.log(P), LABEL], {"reduction": "mean"}),
}  # fmt: skip


def model(kind: str):
    arrays, settings = CASES[kind]
    names = [f"i{n}" for n in range(len(arrays))]
    forward = kind == "SoftmaxCrossEntropyLossInternal"
    outputs, dims = (["y", "log_prob"], []) if forward else (["y"], [4, 5])
    node = helper.make_node(kind, names, outputs, domain="com.microsoft", **settings)
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, arrays, strict=True)
    ]
    graph = helper.make_graph([node], "g", values, [helper.make_tensor_value_info("y", 1, dims)])
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), dict(
        zip(names, arrays, strict=True)
    )


@pytest.mark.parametrize("kind", FORMULAS)
def test_the_formula_is_what_the_kernel_computes(kind):
    it, feeds = model(kind)
    expected = onnxgrad.session(it).run(None, feeds)[0]
    add_functions(it)
    assert [f.name for f in it.functions] == [kind]
    plain = onnxruntime.InferenceSession(it.SerializeToString()).run(None, feeds)[0]
    np.testing.assert_allclose(plain, expected, rtol=1e-5, atol=1e-7)


def test_a_session_that_knows_the_kernel_takes_it():
    it, feeds = model("ReluGrad")
    add_functions(it)
    it.functions[0].node[-1].op_type = "Add"  # of no meaning, and of the wrong number of inputs
    it.functions[0].node[-1].input[:] = it.functions[0].node[-1].input[1:]
    found = onnxgrad.session(it).run(None, feeds)[0]
    np.testing.assert_array_equal(found, np.where(B > 0, A, 0))


def test_a_training_model_runs_in_a_plain_session(tmp_path):
    files = make(tmp_path)
    session = onnxruntime.InferenceSession(files.folder / "training_model.onnx")
    weights = arrays_of(classifier())
    feeds = {**weights, "input": X, "labels": LABELS, "lazy_reset_grad": np.array([True])}
    feeds.update((f"{n}_grad.accumulation.buffer", np.zeros_like(weights[n])) for n in NAMES)
    loss, *flags = session.run(None, feeds)
    np.testing.assert_allclose(loss, reference(weights, X, LABELS)[0], rtol=1e-6)
    assert all(flag.tolist() == [True] for flag in flags)
