"""Gradients of means that are spread out by the operator that reads them."""

from __future__ import annotations

import numpy as np
import pytest
from graph.pattern_models import model_of, results, wanted

_EXCITED = """(float[2, 4, 5, 6] x) => (float[2, 4, 5, 6] y) <float[4, 1, 1] w> {
    h = Tanh(x)  g = GlobalAveragePool(h)  s = Mul(g, w)  a = Sigmoid(s)  y = Mul(h, a) }"""
_MEAN = """(double[2, 3, 7] x) => (double[2, 3, 7] y) <double[7] w> {
    at = Constant<value = int64[1] {-1}>()  h = Mul(x, w)  m = ReduceMean<axes = [-1], keepdims = 1>(h)
    d = Sub(h, m)  y = Sin(d) }"""


@pytest.mark.parametrize(
    "text", [_EXCITED, _MEAN], ids=["squeeze and excitation", "a mean in parts"]
)
def test_what_the_reader_spreads_by_itself_is_not_spread_before(text):
    model = model_of(text)
    ours, count = results(model, wanted(model))
    theirs, without = results(model, wanted(model), patterns=False)
    assert count["Expand"] == 0 < without["Expand"]
    for name, value in theirs.items():
        atol = 1e-12 if value.dtype == np.float64 else 2e-6
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=atol, err_msg=name)


def test_a_spread_whose_reader_has_less_than_the_shape_stays():
    text = _MEAN.replace("<double[7] w>", "<double[1] w>").split("d = Sub")[0] + "y = Sin(m) }"
    model = model_of(text.replace("=> (double[2, 3, 7] y)", "=> (double[2, 3, 1] y)"))
    ours, count = results(model, wanted(model))
    theirs, _ = results(model, wanted(model), patterns=False)
    assert count["Expand"] >= 1
    for name, value in theirs.items():
        assert ours[name].shape == value.shape
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    "end",
    [
        "y = ReduceMean<axes = [0], keepdims = 0>(h)",  # the spread gradient is the gradient itself
        "m = ReduceMean<axes = [-1], keepdims = 1>(h)  y = Mul(m, m)",  # and nothing else has the shape
    ],
)
def test_a_spread_that_nobody_else_makes_stays(end):
    text = _MEAN.split("m = Reduce")[0].replace("h = Mul(x, w)", "h = Identity(x)") + end + " }"
    text = text.replace("=> (double[2, 3, 7] y)", "=> (double y)").replace(" <double[7] w>", "")
    model = model_of(text)
    ours, count = results(model, ["x"])
    theirs, _ = results(model, ["x"], patterns=False)
    assert count["Expand"] >= 1
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=1e-12, err_msg=name)
