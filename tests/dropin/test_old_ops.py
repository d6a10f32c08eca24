"""Operators that only the old package has, on stock onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from dropin.old_cases import CASES, OURS
from onnx import helper

import onnxgrad
from onnxgrad.dropin.old.old_ops import POOLS, REWRITES, rewrite
from onnxgrad.errors import DropInError

HELD_ELSEWHERE = {"AveragePoolGrad", "MaxPoolGrad", "BitmaskDropout", "BitmaskDropoutGrad"}


def rewritten(model: onnx.ModelProto) -> onnx.ModelProto:
    rewrite(model)
    onnx.checker.check_model(model, full_check=True)
    return model


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.op}: {c.title}")
def test_it_means_the_same(case):
    model = rewritten(case.model())
    assert all(n.domain != OURS for n in model.graph.node)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    found = session.run(None, case.inputs)
    for got, expected in zip(found, case.expected(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape


OLDER = [c for c in CASES if c.op in ("SplitTraining", "ConcatTraining", "Scale", "ReduceAllL2")]


@pytest.mark.parametrize("case", OLDER, ids=lambda c: f"{c.op}: {c.title}")
def test_it_means_the_same_in_opset_11(case):
    model = case.model()
    model.opset_import[0].version = 11
    session = onnxruntime.InferenceSession(rewritten(model).SerializeToString())
    for got, expected in zip(session.run(None, case.inputs), case.expected(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def test_sums_in_opset_13_may_compute_their_axes():
    """The first in which they are an input."""
    case = next(c for c in CASES if c.op == "ReduceSumTraining")
    model = case.model()
    model.opset_import[0].version = 13
    session = onnxruntime.InferenceSession(rewritten(model).SerializeToString())
    np.testing.assert_allclose(
        session.run(None, case.inputs)[0], case.inputs["x"].sum((0, 2), keepdims=True), rtol=1e-6
    )


@pytest.mark.parametrize("axes", [[0, 2], []], ids=str)
def test_sums_in_opset_11(axes):
    case = next(c for c in CASES if c.op == "ReduceSumTraining")
    model = case.model()
    model.opset_import[0].version = 11
    with pytest.raises(
        DropInError, match="sums over axes that the run computes, which opset 11 cannot say"
    ):
        rewrite(model)
    model = case.model()
    model.opset_import[0].version = 11
    del model.graph.input[1]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(axes, np.int64), "a"))
    session = onnxruntime.InferenceSession(rewritten(model).SerializeToString())
    x = case.inputs["x"]
    expected = x.sum(tuple(axes), keepdims=True) if axes else x
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-5)


def test_every_rewrite_has_a_case():
    assert {c.op for c in CASES} | HELD_ELSEWHERE == set(REWRITES)


def pool_model(kind: str, static: bool) -> onnx.ModelProto:
    """X → pool → Y; dY → the pool's gradient, as the old package writes it."""
    sizes = [2, 3, 6, 6] if static else ["N", "C", "H", "W"]
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "NOTSET"}
    pooled = ["Y", "I"] if kind == "MaxPool" else ["Y"]
    back = ["dY", "I"] if kind == "MaxPool" else ["dY"]
    nodes = [
        helper.make_node(kind, ["X"], pooled, name="pool", **attributes),
        helper.make_node(f"{kind}Grad", back, ["dX"], name=f"pool_Grad/{kind}Grad_0", **attributes),
    ]
    values = [
        helper.make_tensor_value_info("X", 1, sizes),
        helper.make_tensor_value_info("dY", 1, 4 * [None]),
    ]
    outputs = [helper.make_tensor_value_info("dX", 1, sizes)]
    graph = helper.make_graph(nodes, "pool", values, outputs)
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid(OURS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_gradients_of_pools(kind, static):
    model = pool_model(kind, static)
    rewrite(model)
    random = np.random.default_rng(3)
    x = random.permutation(216).reshape(2, 3, 6, 6).astype(np.float32)
    dy = random.standard_normal((2, 3, 3, 3)).astype(np.float32)
    got = onnxgrad.session(model).run(None, {"X": x, "dY": dy})[0]
    windows = x.reshape(2, 3, 3, 2, 3, 2)
    spread = np.broadcast_to(dy[:, :, :, None, :, None], windows.shape)
    if kind == "MaxPool":
        expected = np.where(windows == windows.max(axis=(3, 5), keepdims=True), spread, 0)
    else:
        expected = spread / 4
    np.testing.assert_allclose(got, expected.reshape(x.shape), rtol=1e-6)


def test_our_own_pool_gradients_are_left_alone():
    assert POOLS == {"AveragePoolGrad": 1, "MaxPoolGrad": 2}
    node = helper.make_node(
        "AveragePoolGrad", ["dY", "shape"], ["dX"], domain=OURS, kernel_shape=[2]
    )
    graph = helper.make_graph([node], "g", [], [])
    model = helper.make_model(graph)
    rewrite(model)
    assert list(model.graph.node[0].input) == ["dY", "shape"]


def test_a_pool_that_cannot_be_found_is_named():
    model = pool_model("AveragePool", static=False)
    model.graph.node[1].name = "other"
    with pytest.raises(
        DropInError, match=r"node 'other' \(AveragePoolGrad\): the shape .* cannot be told"
    ):
        rewrite(model)


def bitmask_model(extra: bool) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Constant", [], ["ratio"], value_float=0.25),
        helper.make_node("Constant", [], ["on"], value=helper.make_tensor("on", 9, [], [True])),
        helper.make_node(
            "BitmaskDropout", ["x", "ratio", "on"], ["y", "mask"], domain=OURS, seed=4
        ),
        helper.make_node("BitmaskDropoutGrad", ["dy", "mask", "ratio", "on"], ["dx"], domain=OURS),
    ]
    if not extra:
        del nodes[2]
    kinds = [helper.make_tensor_value_info(n, 1, [40, 25]) for n in ("x", "dy")]
    if not extra:
        kinds.append(helper.make_tensor_value_info("mask", 12, [32]))
    outputs = [
        helper.make_tensor_value_info(n, 1, [40, 25]) for n in (["y", "dx"] if extra else ["dx"])
    ]
    graph = helper.make_graph(nodes, "g", kinds, outputs)
    graph.value_info.append(helper.make_tensor_value_info("mask", 12, [32]))
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid(OURS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_bitmask_dropout_and_its_gradient_share_a_mask():
    model = bitmask_model(extra=True)
    rewrite(model)
    ones = np.ones((40, 25), np.float32)
    y, dx = onnxgrad.session(model).run(None, {"x": ones, "dy": ones})
    assert 0.6 < (y != 0).mean() < 0.9
    np.testing.assert_array_equal(y, dx)
    np.testing.assert_allclose(y[y != 0], 1 / 0.75, rtol=1e-6)


def test_a_packed_mask_from_elsewhere_is_refused():
    with pytest.raises(
        DropInError, match="takes the mask 'mask', expected the second output of a BitmaskDropout"
    ):
        rewrite(bitmask_model(extra=False))
