"""DynamicQuantizeMatMul: the gradient goes straight through the rounding of A, to W = (q - z)·scale of its column."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxgrad

RNG = np.random.default_rng(0)
M, K, N = 3, 20, 5
Q = RNG.integers(-90, 90, (K, N)).astype(np.int8)
SCALE, ZERO = RNG.uniform(0.01, 0.02, N).astype(np.float32), RNG.integers(-9, 9, N).astype(np.int8)
DY = RNG.standard_normal((M, N)).astype(np.float32)


def model(arrays: dict, given: tuple[str, ...] = ()) -> onnx.ModelProto:
    """One node; tensors whose names are `given` come with every run."""
    names = [n if n in arrays else "" for n in ("A", "B", "b_scale", "b_zero_point", "bias")]
    node = helper.make_node("DynamicQuantizeMatMul", names, ["Y"], domain="com.microsoft")
    info = helper.make_tensor_value_info
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in arrays.items()}
    inputs = [n for n in arrays if n in ("A", "bias", *given)]
    graph = helper.make_graph(
        [node], "g",
        [info(n, kinds[n], arrays[n].shape) for n in inputs],
        [info("Y", TensorProto.FLOAT, [M, N])],
        [numpy_helper.from_array(a, n) for n, a in arrays.items() if n not in inputs],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


ROWS = list(itertools.product((np.int8, np.uint8), (True, False), (True, False)))


@pytest.mark.parametrize("ops", ["fused", "standard"])
@pytest.mark.parametrize(("kind", "with_zero", "with_bias"), ROWS)
def test_the_gradient_is_that_of_the_matrix_that_is_meant(kind, with_zero, with_bias, ops):
    shift = 0 if kind == np.int8 else 100
    arrays = {"A": RNG.standard_normal((M, K)).astype(np.float32), "b_scale": SCALE,
              "B": (Q.astype(int) + shift).astype(kind)}  # fmt: skip
    if with_zero:
        arrays["b_zero_point"] = (ZERO.astype(int) + shift).astype(kind)
    if with_bias:
        arrays["bias"] = RNG.standard_normal(N).astype(np.float32)
    wrt = ["A", *(["bias"] if with_bias else [])]
    gradient = onnxgrad.vjp(model(arrays), wrt=wrt, ops=ops)
    found = {n.op_type for n in gradient.graph.node}
    assert ("MatMulNBitsGrad" in found) == (ops == "fused"), "W stays in bytes where it can"
    feeds = {n: arrays[n] for n in wrt}
    _, dA, *dbias = onnxgrad.session(gradient).run(None, {**feeds, "Y_grad": DY})
    zero = arrays["b_zero_point"].astype(np.float64) if with_zero else 0
    W = (arrays["B"].astype(np.float64) - zero) * SCALE
    np.testing.assert_allclose(dA, DY @ W.T, rtol=0, atol=2e-6 * np.abs(DY @ W.T).max())
    for d in dbias:
        np.testing.assert_allclose(d, DY.sum(0), rtol=1e-6)


@pytest.mark.parametrize("given", ["B", "b_scale", "b_zero_point"])
def test_what_only_the_run_knows_is_not_kept_in_bytes(given):
    arrays = {
        "A": RNG.standard_normal((M, K)).astype(np.float32),
        "B": Q,
        "b_scale": SCALE,
        "b_zero_point": ZERO,
    }
    gradient = onnxgrad.vjp(model(arrays, (given,)), wrt=["A"])
    assert "MatMulNBitsGrad" not in {n.op_type for n in gradient.graph.node}
    assert {i.name for i in gradient.graph.input} == {"A", given, "Y_grad"}
