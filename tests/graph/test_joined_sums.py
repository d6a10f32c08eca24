"""Sums that become part of the kernel before them: the same gradients by fewer nodes."""

from __future__ import annotations

import numpy as np
import pytest
from graph.pattern_models import RMS, model_of, results, wanted

import onnxgrad

_BRANCHES = {
    "GroupNormalizationGrad": """(double[2, 6, 4, 5] x) => (double[2, 12, 4, 5] y) <double[6] w, double[6] b> {
        h = Tanh(x)  n = InstanceNormalization<epsilon = 0.001>(h, w, b)  r = Relu(n)
        f = Sin(r)  y = Concat<axis = 1>(h, f) }""",
    "LayerNormalizationGrad": """(float[3, 5, 8] x) => (float[3, 5, 8] y) <float[8] w, float[8] b> {
        h = Tanh(x)  n = LayerNormalization<epsilon = 0.001>(h, w, b)  f = Sin(n)  y = Add(h, f) }""",
    "SimplifiedLayerNormalizationGrad": RMS.replace("y = Mul(w, n)", "q = Mul(w, n)  f = Sin(q)  y = Add(h, f)"),
}  # fmt: skip


@pytest.mark.parametrize("operator", _BRANCHES)
def test_a_normalisation_adds_to_what_flows_past_it(operator):
    model = model_of(_BRANCHES[operator])
    ours, count = results(model, wanted(model))
    theirs, without = results(model, wanted(model), patterns=False)
    assert count[operator] == 1
    assert count["Add"] + count["Sum"] < without["Add"] + without["Sum"]
    for name, value in theirs.items():
        atol = 1e-12 if value.dtype == np.float64 else 3e-6
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=atol, err_msg=name)


_RESIDUAL = """(double[3, 5, 40] x) => (double[3, 5, 40] y) <double[40, 40] w, double[40] b, double[40, 40] v> {
    h = Tanh(x)  m = MatMul(h, w)  l = Add(m, b)  r = Add(h, l)  n = MatMul(r, v)  s = Add(n, r)  y = Tanh(s) }"""
_THREE = """(double[3, 5, 40] x) => (double[3, 5, 40] y) <double[40, 40] q, double[40, 40] k, double[40, 40] v> {
    h = Tanh(x)  a = MatMul(h, q)  b = MatMul(h, k)  c = MatMul(h, v)  ab = Mul(a, b)  y = Mul(ab, c) }"""


def test_linear_layers_add_what_flows_past_them():
    model = model_of(_RESIDUAL)
    ours, count = results(model, wanted(model))
    theirs, without = results(model, wanted(model), patterns=False)
    assert (count["LinearTraining"], count["LinearGrad"]) == (2, 2)
    assert count["Add"] + count["Sum"] == 0 < without["Add"]
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=1e-12, err_msg=name)


def test_gradients_of_queries_keys_and_values_meet_in_the_kernels():
    model = model_of(_THREE)
    ours, count = results(model, wanted(model))
    theirs, _ = results(model, wanted(model), patterns=False)
    assert (count["LinearGrad"], count["Add"] + count["Sum"]) == (3, 0)
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    "other",
    {
        "what is added has fewer rows": "t = ReduceMean<axes = [1]>(h)  r = Add(t, l)",
        "the layer has another reader": "u = Sin(l)  r0 = Add(h, u)  r = Add(r0, l)",
        "what is added comes later": "t = Sin(l)  r = Add(l, t)",
        "it is added to itself": "r = Add(l, l)",
    }.items(),
    ids=lambda item: item[0],
)
def test_a_sum_that_no_layer_can_add_stays(other):
    text = _RESIDUAL.replace("r = Add(h, l)", other[1]).replace("s = Add(n, r)", "s = Mul(n, r)")
    model = model_of(text)
    ours, count = results(model, wanted(model))
    theirs, _ = results(model, wanted(model), patterns=False)
    assert count["Add"] >= 1
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=1e-12, err_msg=name)


_CONV = """(float[2, 3, 6] x) => (float[2, 3, 6] y) <float[3, 3, 1] w, float[3] b> {
    h = Tanh(x)  c = Conv(h, w, b)  r = Add(h, c)  y = Tanh(r) }"""


def test_convolutions_of_onnxruntime_add_what_flows_past_them():
    """FusedConv, which there is for float alone."""
    model = model_of(_CONV)
    ours, count = results(model, wanted(model))
    theirs, _ = results(model, wanted(model), patterns=False)
    assert (count["FusedConv"], count["Conv"]) == (1, 0)
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=3e-6, err_msg=name)
    gradient = onnxgrad.vjp(model_of(_CONV.replace("float", "double")), wrt=["x"])
    assert "FusedConv" not in {n.op_type for n in gradient.graph.node}
