"""What `inspect` foretells of a step, counted by hand: two operations per multiply-add, one per element otherwise."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgrad.graph import load
from onnxgrad.inspection import memory
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


def cost_of(made: ir.Model, trained=(), active=(), batch: int = 1, step=None):
    return estimate(made, step, set(active), set(trained), batch, {})


@pytest.mark.parametrize("row", ROWS, ids=[r[0] for r in ROWS])
def test_operations(row):
    _, op_type, inputs, out, attributes, expected = row
    cost = cost_of(model(op_type, inputs, out, **attributes))
    assert (cost.forward_flops, cost.step_flops, cost.uncounted) == (expected, 3 * expected, 0)


def test_an_open_dim_is_the_batch_where_it_comes_first_and_one_elsewhere():
    made, assumed = memory.with_sizes(model("Tanh", {"x": ["N", "T", 4]}, ["N", "T", 4]), 8, {})
    assert (cost_of(made).forward_flops, assumed) == (8 * 1 * 4, {"N": 8, "T": 1})


def test_what_has_no_shape_is_not_counted_and_said():
    made = model("Tanh", {"x": [2]}, [2])
    made.graph.outputs[0].shape = None
    cost = cost_of(made, active=["y"])
    assert (cost.forward_flops, cost.uncounted) == (0, 1)


def test_bytes():
    made = model("Gemm", {"x": [3, 5], "w": [5, 7], "b": [7]}, [3, 7], weights="wb")
    cost = cost_of(made, trained="w", active="y")
    assert cost.parameter_bytes == cost.gradient_bytes == 4 * 35
    assert cost.optimizer_bytes == 2 * 4 * 35
    assert cost.file_bytes == 4 * (35 + 7)
    assert cost.frozen_bytes == 1.5 * 4 * 7, "the runtime packs what a product reads"
    assert cost.activation_bytes == int(memory.SPARE * 4 * 21), (
        "kept, since there is no gradient graph"
    )
    assert cost.working_bytes == memory.NODE
    rest = cost.activation_bytes + memory.NODE
    assert cost.step_bytes == OVERHEAD + 4 * (35 + 35 + 70 + 42 + 10.5) + rest
    assert cost_of(made, trained="wb").activation_bytes == 0
    alone = model("Mul", {"x": [3], "w": [3]}, [3], weights="w")
    assert cost_of(alone).frozen_bytes == 4 * 3


def chain(*op_types: str) -> ir.Model:
    """Nodes one after the other, each of ten floats, and a sum of the first and the last."""
    names = [f"v{i}" for i in range(len(op_types) + 1)]
    info = helper.make_tensor_value_info
    steps = zip(op_types, names, names[1:], strict=False)
    nodes = [helper.make_node(op, [a], [b]) for op, a, b in steps]
    nodes.append(helper.make_node("Concat", [names[1], names[-1]], ["y"], axis=0))
    inside = [info(n, FLOAT, [10]) for n in names[1:]]
    graph = helper.make_graph(
        nodes, "g", [info("v0", FLOAT, [10])], [info("y", FLOAT, [20])], value_info=inside
    )
    return ir.from_proto(helper.make_model(graph))


@pytest.mark.parametrize(
    ("op_types", "values"),
    [
        (("Abs", "Abs"), 2),
        (("Abs", "Abs", "Abs", "Abs"), 3),  # the first waits, one is read, one is made
        (("Abs", "Abs", "Relu", "Relu"), 2),  # written over what it reads
        (("Abs", "Identity", "Identity"), 1),  # views
    ],
)
def test_values_that_are_there_at_once(op_types, values):
    assert memory.alive_at_most(chain(*op_types).graph) == values * 40


def test_what_is_frozen_is_lent_copied_and_packed_or_read_in_place():
    def kept(columns: int, op_type: str = "MatMul") -> float:
        made = model(op_type, {"x": [1, 1024], "w": [1024, columns]}, [1, columns], weights="w")
        return memory.kept_by_sessions(made.graph.initializers.values()) / (4096 * columns)

    assert (kept(64), kept(1 << 16)) == (2.5, 1)
    assert kept(8) == 1.5, "too small to be lent"
    assert kept(64, "Mul") == 2


def test_a_loss_takes_three_times_what_it_judges():
    made = model("Gemm", {"x": [3, 5], "w": [5, 7], "b": [7]}, [3, 7], weights="wb")
    found = estimate(made, made, set(), set(), 1, {}, ["y"])
    assert found.activation_bytes == int(memory.SPARE * 3 * 4 * 21)


def test_weights_in_constants_are_counted():
    made = load(
        onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 1] x) => (float[N, 2] y)
        { w = Constant<value = float[1, 2] {1.5, 2}>()  y = MatMul(x, w) }""")
    )
    assert cost_of(made, trained=["w"]).parameter_bytes == 8


@pytest.mark.parametrize(("size", "unrolled"), [(9, 0), (5, 64 * 3 * 3 * 5 * 5 * 4)])
def test_a_picture_is_unrolled_where_it_has_fewer_pixels_than_channels(size, unrolled):
    shape = [2, 64, size, size]
    made = model("Conv", {"x": shape, "w": [64, 64, 3, 3]}, shape, pads=[1, 1, 1, 1], weights="w")
    assert memory.workspace(made.graph) == unrolled


def test_the_values_and_nodes_of_bodies_are_counted():
    made = load(
        onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[5, 4] x, int64 n) => (float[5, 4] z) <bool go = {1}> {
            y = Loop(n, go, x) <body = b (int64 i, bool c, float[5, 4] h) => (bool d, float[5, 4] k)
                { d = Identity(c)  a = Sin(h)  e = Cos(h)  k = Mul(a, e) }>
            z = Neg(y)
        }""")
    )
    assert memory.count_nodes(made.graph) == 6
    assert memory.alive_at_most(made.graph) == 80 + 2 * 80 + 80 + 1, "y; a and e; k and d"
