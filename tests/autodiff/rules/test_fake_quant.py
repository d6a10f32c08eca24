"""FakeQuant in a graph: fused and standard rules give the straight-through gradients of its reference."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from reference.fake_quant import fake_quant
from reference.learned_fake_quant_grad import learned_fake_quant_grad

import onnxgrad

# title -> shape of x, shape of the scales, attributes
LAYOUTS = {
    "per tensor": ((5, 7), (), {}),
    "a vector of one": ((5, 7), (1,), {}),
    "per channel": ((4, 6, 3, 3), (6,), dict(axis=1)),
    "per row": ((6, 9), (6,), dict(axis=0)),
    "per column": ((6, 9), (9,), dict(axis=-1)),
    "blocks": ((6, 20), (6, 3), dict(axis=1, block_size=8)),
    "blocks of rows": ((20, 6), (3, 6), dict(axis=0, block_size=8)),
}
RANGE = dict(quant_min=-8, quant_max=7)


PACES = {
    "exact": {},
    "LSQ": dict(scale_gradient="lsq"),
    "LSQ, of a batch": dict(scale_gradient="lsq", batched=1),
    "LSQ of the logarithm": dict(scale_gradient="lsq_log", batched=1),
}


def model(shape, of, attributes) -> onnx.ModelProto:
    node = helper.make_node(
        "FakeQuant", ["x", "s", "z"], ["y"], domain="com.microsoft", **RANGE, **attributes
    )
    info = helper.make_tensor_value_info
    inputs = [info(n, TensorProto.FLOAT, d) for n, d in (("x", shape), ("s", of), ("z", of))]
    graph = helper.make_graph([node], "g", inputs, [info("y", TensorProto.FLOAT, shape)])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("ops", ["fused", "standard"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pace", PACES)
def test_gradients(layout, pace, ops):
    shape, of, attributes = LAYOUTS[layout]
    attributes = {**attributes, **PACES[pace]}
    rng = np.random.default_rng(3)
    x, dy = rng.standard_normal((2, *shape)).astype(np.float32)
    s = rng.uniform(0.1, 0.3, of).astype(np.float32)
    z = rng.integers(-2, 3, of).astype(np.float32)
    gradient = onnxgrad.vjp(model(shape, of, attributes), wrt=["x", "s", "z"], ops=ops)
    kinds = {n.op_type for n in gradient.graph.node}
    assert ("LearnedFakeQuantGrad" in kinds) == (ops == "fused")
    session = onnxgrad.session(gradient)
    names = ["y", "x_grad", "s_grad", "z_grad"]
    got = dict(zip(names, session.run(names, {"x": x, "s": s, "z": z, "y_grad": dy}), strict=True))
    wide = [a.astype(np.float64) for a in (x, s, z)]
    expected = learned_fake_quant_grad(dy.astype(np.float64), *wide, **RANGE, **attributes)
    forward = fake_quant(*wide, **RANGE, **attributes)["output"]
    for name, value in zip(names, (forward, *expected.values()), strict=True):
        assert got[name].shape == np.shape(value)
        np.testing.assert_allclose(got[name], value, rtol=2e-5, atol=2e-5, err_msg=name)


def test_the_same_integers_as_quantize_linear():
    """What is trained is what a quantised file computes."""
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((64, 33)) * 3).astype(np.float32)
    s = rng.uniform(0.01, 0.05, 33).astype(np.float32)
    z = rng.integers(0, 255, 33).astype(np.uint8)
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1),
    ]
    inputs = [
        info("x", TensorProto.FLOAT, [64, 33]), info("s", TensorProto.FLOAT, [33]),
        info("z", TensorProto.UINT8, [33]),
    ]  # fmt: skip
    graph = helper.make_graph(nodes, "g", inputs, [info("y", TensorProto.FLOAT, [64, 33])])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    expected = session.run(None, {"x": x, "s": s, "z": z})[0]
    got, _ = onnxgrad.kernels.fake_quant(x, s, z.astype(np.float32), axis=1)
    np.testing.assert_array_equal(got, expected)
