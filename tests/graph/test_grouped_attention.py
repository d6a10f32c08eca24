"""Keys and values that several queries share, and weights that are guarded against rows that read nothing."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from graph.pattern_models import model_of, results, wanted

# Four heads of queries and two of keys; keys as PyTorch's newer exporter turns them: batches and heads in one axis.
_GROUPED = """(double[2, 5, 12] x, double[2, 1, 5, 5] mask) => (double[2, 5, 12] y)
    <double[12, 12] wq, double[12, 6] wk, double[12, 6] wv> {
    of_q = Constant<value = int64[4] {2, 5, 4, 3}>()  of_k = Constant<value = int64[4] {2, 5, 2, 3}>()
    joined = Constant<value = int64[3] {2, 5, 12}>()  two = Constant<value = int64[1] {2}>()
    spread = Constant<value = int64[5] {2, 2, 2, 5, 3}>()  heads = Constant<value = int64[4] {2, 4, 5, 3}>()
    qm = MatMul(x, wq)  km = MatMul(x, wk)  vm = MatMul(x, wv)
    qr = Reshape(qm, of_q)  kr = Reshape(km, of_k)  vr = Reshape(vm, of_k)
    q = Transpose<perm = [0, 2, 1, 3]>(qr)  kh = Transpose<perm = [0, 2, 1, 3]>(kr)
    vh = Transpose<perm = [0, 2, 1, 3]>(vr)
    ku = Unsqueeze(kh, two)  ke = Expand(ku, spread)  vu = Unsqueeze(vh, two)  ve = Expand(vu, spread)
    v = Reshape(ve, heads)
    KEYS
    m = MatMul(q, kt)  s = Add(m, mask)  p = Softmax<axis = -1>(s)
    GUARD
    o = MatMul(w, v)  u = Transpose<perm = [0, 2, 1, 3]>(o)  y = Reshape(u, joined) }"""
_HEADS = "k = Reshape(ke, heads)  kt = Transpose<perm = [0, 1, 3, 2]>(k)"
_ONE_AXIS = """flat = Constant<value = int64[3] {8, 5, 3}>()  turned = Constant<value = int64[4] {2, 4, 3, 5}>()
    kf = Reshape(ke, flat)  kx = Transpose<perm = [0, 2, 1]>(kf)  kt = Reshape(kx, turned)"""
_PLAIN = "w = Identity(p)"
_GUARD = "zero = Constant<value = double {0.0}>()  n = IsNaN(p)  w = Where(n, zero, p)"


def grouped(keys: str, guard: str) -> onnx.ModelProto:
    text = _GROUPED if "(ke" in keys else _GROUPED.replace("ke = Expand(ku, spread)  ", "")
    return model_of(text.replace("KEYS", keys).replace("GUARD", guard))


_TILES = _HEADS.replace(
    "k = Reshape(ke", "twice = Constant<value = int64[5] {1, 1, 2, 1, 1}>()  kt5 = Tile(ku, twice)  k = Reshape(kt5"
)  # fmt: skip


@pytest.mark.parametrize("keys", [_HEADS, _ONE_AXIS, _TILES], ids=["heads", "one axis", "tiles"])
def test_shared_keys_are_read_once(keys):
    """Their gradient is that of the keys as they were: nothing is repeated, nothing summed up."""
    model = grouped(keys, _GUARD)
    weights = ["x", "wq", "wk", "wv"]
    ours, count = results(model, weights)
    theirs, without = results(model, weights, patterns=False)
    assert count["AttentionTraining"] == count["AttentionGrad"] == 1
    assert not {"Expand", "Tile", "IsNaN", "Softmax", "ReduceSum"} & set(count)
    assert without["Softmax"] == 1
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=1e-12, err_msg=name)


def test_a_row_that_may_read_no_key_gives_zeros_and_no_gradient():
    model = grouped(_HEADS, _GUARD)
    mask = np.zeros((2, 1, 5, 5))
    mask[1, 0, 3] = -np.inf
    del model.graph.input[1]
    model.graph.initializer.append(onnx.numpy_helper.from_array(mask, "mask"))
    ours, count = results(model, ["x", "wq"])
    theirs, without = results(model, ["x"], patterns=False)
    assert (count["AttentionTraining"], without["AttentionTraining"]) == (1, 0)
    assert not ours["y"][1, 3].any()
    np.testing.assert_allclose(ours["y"], theirs["y"], rtol=0, atol=1e-12)
    for name, value in ours.items():
        assert np.isfinite(value).all(), name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Where(n, zero, p)", "Where(n, one, p)"),
        ("n = IsNaN(p)", "n = IsNaN(s)"),
        ("Where(n, zero, p)", "Where(n, p, zero)"),
        ("w = Where(n, zero, p)", "w0 = Where(n, zero, p)  w = Add(w0, p)"),
    ],
)
def test_another_choice_is_no_guard(old, new):
    guard = _GUARD.replace(old, new) + "  one = Constant<value = double {1.0}>()"
    _, count = results(grouped(_HEADS, guard), ["x"])
    assert count["AttentionTraining"] == 0


def test_keys_that_take_turns_are_not_shared():
    """Two of two heads each, but as 0 1 0 1 and not as 0 0 1 1."""
    text = (
        _GROUPED.replace("KEYS", _HEADS)
        .replace("GUARD", _GUARD)
        .replace("Unsqueeze(kh, two)", "Unsqueeze(kh, one)")
    )
    text = text.replace("Unsqueeze(vh, two)", "Unsqueeze(vh, one)").replace(
        "two = Constant", "one = Constant<value = int64[1] {1}>()  two = Constant"
    )
    model = model_of(text)
    ours, count = results(model, wanted(model))
    theirs, _ = results(model, wanted(model), patterns=False)
    assert count["AttentionTraining"] == 1
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=1e-12, err_msg=name)


def test_values_that_are_not_shared_as_the_keys_are():
    """Keys in their own heads then, or, where they are there in no such form, no pattern."""
    text = _GROUPED.replace("v = Reshape(ve, heads)", "vs = Sin(ve)  v = Reshape(vs, heads)")
    for keys, seen in ((_HEADS, 1), (_ONE_AXIS, 0)):
        model = model_of(text.replace("KEYS", keys).replace("GUARD", _GUARD))
        ours, count = results(model, wanted(model))
        theirs, _ = results(model, wanted(model), patterns=False)
        assert count["AttentionTraining"] == seen
        for name, value in theirs.items():
            np.testing.assert_allclose(ours[name], value, rtol=0, atol=1e-12, err_msg=name)


def test_a_causal_mask_of_several_batches_costs_no_tensor():
    mask = np.where(np.tri(5, dtype=bool), 0.0, -np.inf) * np.ones((2, 1, 1, 1))
    mask = np.where(np.isnan(mask), 0.0, mask)
    model = grouped(_HEADS, _GUARD)
    del model.graph.input[1]
    model.graph.initializer.append(onnx.numpy_helper.from_array(mask, "mask"))
    ours, count = results(model, ["x", "wk", "wv"])
    theirs, _ = results(model, ["x", "wk", "wv"], patterns=False)
    assert count["AttentionTraining"] == 1
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=1e-12, err_msg=name)
