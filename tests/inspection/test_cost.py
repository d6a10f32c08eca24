"""What `inspect` foretells of a step, counted by hand: two operations per multiply-add, one per element otherwise."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgrad.inspection.cost import OVERHEAD, estimate

FLOAT = TensorProto.FLOAT


def model(op_type, inputs, out, weights=(), **attributes) -> ir.Model:
    """A model of one node: the shapes of what it reads and of what it makes, and which inputs are weights."""
    info = helper.make_tensor_value_info
    arrays = {n: np.zeros(s, np.float32) for n, s in inputs.items() if n in weights}
    graph = helper.make_graph(
        [helper.make_node(op_type, list(inputs), ["y"], **attributes)],
        "g",
        [info(n, FLOAT, s) for n, s in inputs.items() if n not in arrays],
        [info("y", FLOAT, out)],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )
    return ir.from_proto(helper.make_model(graph))


ROWS = [
    ("a product of many matrices", "MatMul", {"a": [2, 3, 5], "b": [2, 5, 7]}, [2, 3, 7], {}, 2 * 2 * 3 * 7 * 5),
    ("a layer", "Gemm", {"a": [3, 5], "b": [5, 7]}, [3, 7], {}, 2 * 3 * 7 * 5),
    ("its input turned", "Gemm", {"a": [5, 3], "b": [5, 7]}, [3, 7], {"transA": 1}, 2 * 3 * 7 * 5),
    ("not turned, and said so", "Gemm", {"a": [3, 5], "b": [5, 7]}, [3, 7], {"transA": 0}, 2 * 3 * 7 * 5),
    ("a convolution", "Conv", {"x": [2, 3, 9, 9], "w": [4, 3, 3, 2]}, [2, 4, 7, 8], {},
     2 * (2 * 4 * 7 * 8) * (3 * 3 * 2)),
    ("its opposite, by what it reads", "ConvTranspose", {"x": [2, 3, 5, 5], "w": [3, 4, 3, 2]}, [2, 4, 7, 6], {},
     2 * (2 * 3 * 5 * 5) * (4 * 3 * 2)),
    ("cells", "LSTM", {"x": [6, 2, 5], "w": [1, 12, 5], "r": [1, 12, 3]}, [6, 1, 2, 3], {"hidden_size": 3},
     2 * 6 * 2 * (12 * 5 + 12 * 3)),
    ("elements", "Tanh", {"x": [2, 3, 4]}, [2, 3, 4], {}, 24),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[r[0] for r in ROWS])
def test_operations(row):
    _, op_type, inputs, out, attributes, expected = row
    cost = estimate(model(op_type, inputs, out, **attributes), set(), [], batch=1)
    assert (cost.forward_flops, cost.step_flops, cost.uncounted) == (expected, 3 * expected, 0)


def test_an_open_dim_is_the_batch_where_it_comes_first_and_one_elsewhere():
    cost = estimate(model("Tanh", {"x": ["N", "T", 4]}, ["N", "T", 4]), set(), [], batch=8)
    assert (cost.forward_flops, cost.assumed) == (8 * 1 * 4, {"N": 8, "T": 1})


def test_what_has_no_shape_is_not_counted_and_said():
    made = model("Tanh", {"x": [2]}, [2])
    made.graph.outputs[0].shape = None
    cost = estimate(made, set(made.graph.outputs), [], batch=1)
    assert (cost.forward_flops, cost.uncounted, cost.activation_bytes) == (0, 1, 0)


def test_bytes():
    made = model("Gemm", {"x": [3, 5], "w": [5, 7], "b": [7]}, [3, 7], weights="wb")
    w, b = (made.graph.initializers[n] for n in "wb")
    cost = estimate(made, {made.graph.outputs[0]}, [w], batch=1)
    assert cost.parameter_bytes == cost.gradient_bytes == 4 * 35
    assert cost.optimizer_bytes == 2 * 4 * 35
    assert cost.file_bytes == 4 * (35 + 7)
    assert cost.frozen_bytes == 2.5 * 4 * 7, "the runtime packs what a product reads"
    assert cost.activation_bytes == cost.working_bytes == 4 * 21
    assert cost.step_bytes == OVERHEAD + 4 * (35 + 35 + 70 + 42 + 17.5 + 21 + 21)
    assert estimate(made, set(), [w, b], batch=1).activation_bytes == 0
    alone = model("Mul", {"x": [3], "w": [3]}, [3], weights="w")
    assert estimate(alone, set(), [], batch=1).frozen_bytes == 4 * 3
