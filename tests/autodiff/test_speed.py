"""Building a gradient takes time in proportion to the model, and not much of it."""

import time

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgrad.autodiff import vjp


def deep(nodes):
    """Blocks of MatMul, Add, Relu, Add (a residual) and LayerNormalization, with weights of their own."""
    rng, weights, made, x = np.random.default_rng(0), [], [], "x"

    def weight(*shape):
        weights.append(
            numpy_helper.from_array(rng.standard_normal(shape).astype("f4"), f"w{len(weights)}")
        )
        return weights[-1].name

    def add(op, *inputs):
        made.append(helper.make_node(op, inputs, [f"v{len(made)}"]))
        return made[-1].output[0]

    while len(made) < nodes:
        h = add("Relu", add("Add", add("MatMul", x, weight(4, 4)), weight(4)))
        x = add("LayerNormalization", add("Add", x, h), weight(4), weight(4))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        made, "deep", [info("x", TensorProto.FLOAT, ["N", "S", 4])],
        [info(x, TensorProto.FLOAT, ["N", "S", 4])], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("nodes", "seconds"), [(2_000, 3), (20_000, 60)])
def test_the_gradient_of_a_large_model_is_built_in_time(nodes, seconds):
    model = deep(nodes)
    started = time.process_time()
    gradient = vjp(model)
    took = time.process_time() - started
    print(f"{nodes} nodes: {took:.1f} s, {len(gradient.graph.node)} nodes")
    assert took < seconds
