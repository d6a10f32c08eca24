"""Activations and pools that become part of an operator beside them: the same gradients by fewer nodes."""

from __future__ import annotations

import numpy as np
import pytest
from graph.pattern_models import GROUPS, GROUPS_RELU, SPLIT_GATE, model_of, results, wanted
from onnx import numpy_helper

import onnxgrad

_INSTANCES = """(double[2, 6, 4, 5] x) => (double[2, 6, 4, 5] y) <double[6] w, double[6] b> {
    h = Tanh(x)  n = InstanceNormalization<epsilon = 0.001>(h, w, b)  r = Relu(n)  y = Tanh(r) }"""


@pytest.mark.parametrize("text", [GROUPS_RELU, _INSTANCES], ids=["groups", "instances"])
def test_a_normalisation_takes_the_relu_behind_it(text):
    ours, count = results(model_of(text), ["x", "w", "b"])
    theirs, without = results(model_of(text), ["x", "w", "b"], patterns=False)
    assert (count["Relu"], count["ReluGrad"]) == (0, 0)
    assert without["Relu"] == 1
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("seen", ["y = Mul(a, r)", "y = Identity(r)  z = Identity(a)"])
def test_a_relu_stays_where_what_it_reads_has_other_readers(seen):
    text = GROUPS.replace("y = Tanh(a)", f"r = Relu(a)  {seen}")
    if "z" in seen:
        text = text.replace("[2, 6, 4, 5] y)", "[2, 6, 4, 5] y, double[2, 6, 4, 5] z)", 1)
    _, count = results(model_of(text), ["x", "w", "b"])
    assert count["Relu"] == 1


_POOL = "p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)  y = Tanh(p) }"
_POOLED = """(float[2, 3, 8, 8] x) => (float[2, 4, 4, 4] y) <float[4, 3, 3, 3] w, float[4] b> {
    c = Conv<pads = [1, 1, 1, 1]>(x, w, b)  r = Relu(c)  """ + _POOL  # fmt: skip


def test_a_relu_follows_the_pool_that_reads_it():
    """Weights that make some windows negative as a whole, and others equal to 0 in places."""
    model = model_of(_POOLED)
    array = numpy_helper.to_array(model.graph.initializer[0]).copy()
    array[[1, 3]] = 0  # channels of equal numbers: every window is a tie
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "w"))
    model.graph.initializer[1].CopyFrom(
        numpy_helper.from_array(np.array([0, 0, -3, 0.5], np.float32), "b")
    )
    ours, count = results(model, ["x", "w", "b"])
    theirs, _ = results(model, ["x", "w", "b"], patterns=False)
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=2e-6, err_msg=name)
    assert (count["Relu"], count["ReluGrad"], count["MaxPoolTraining"]) == (0, 0, 1)


def test_a_relu_that_others_read_stays_before_the_pool():
    text = _POOLED.replace("y = Tanh(p)", "s = ReduceSum(r)  q = Tanh(p)  y = Mul(q, s)")
    gradient = onnxgrad.vjp(model_of(text), wrt=["x"])
    made = {o: n.op_type for n in gradient.graph.node for o in n.output}
    (relu,) = (n for n in gradient.graph.node if n.op_type == "Relu")
    assert made[relu.input[0]].startswith("Conv")


@pytest.mark.parametrize(
    "other",
    [
        "ta = Tanh(b)  tb = Sigmoid(a)  z = Mul(ta, tb)",  # the halves in the other order
        "ta = Tanh(a)  tb = Sigmoid(b)  t = Mul(tb, ta)  z = Add(t, ta)",  # read twice
        "ta = Tanh(a)  tb = Sigmoid(b)  t = Mul(tb, ta)  z = Add(t, b)",
    ],
)
def test_halves_that_are_no_gate(other):
    text = SPLIT_GATE.replace("ta = Tanh(a)  tb = Sigmoid(b)  z = Mul(tb, ta)", other)
    model = model_of(text)
    ours, count = results(model, wanted(model))
    theirs, _ = results(model, wanted(model), patterns=False)
    assert count["GateTraining"] == 0
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=1e-12, err_msg=name)
