"""Chains of shapes, evaluated while a graph is built, give what onnxruntime would compute."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper

from onnxgrad.graph.constants import LIMIT, TABLE, Constants, evaluate


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


SIGNS = (ints(7, -7, 7, -7, 6, 0), ints(2, 2, -2, -2, 3, 5))
MATRIX = np.arange(-6, 6).reshape(3, 4)

# The operator, its inputs, its attributes.
CASES = [
    ("Div", SIGNS, {}),  # towards zero, not downwards
    ("Mod", SIGNS, {}),
    ("Mod", SIGNS, {"fmod": 1}),
    *[(op, SIGNS, {}) for op in ("Add", "Sub", "Mul", "Max", "Min", "Equal", "Less", "Greater", "GreaterOrEqual")],
    ("Max", (ints(1, 5), ints(3), ints(2, 9)), {}),
    ("Min", (ints(1, 5), ints(3), ints(2, 9)), {}),
    ("Neg", (ints(3, -4),), {}),
    ("Identity", (MATRIX,), {}),
    ("Cast", (ints(3, -4),), {"to": onnx.TensorProto.INT32}),
    ("CastLike", (ints(3, -4), np.array(1, np.int32)), {}),
    ("Gather", (MATRIX, ints(2, 0, -1)), {}),
    ("Gather", (MATRIX, ints(1, -1)), {"axis": 1}),
    ("Concat", (ints(1, 2), ints(3)), {"axis": 0}),
    ("Concat", (MATRIX, MATRIX), {"axis": 1}),
    ("Unsqueeze", (ints(1, 2), ints(0)), {}),
    ("Unsqueeze", (ints(1, 2), ints(0, 2)), {}),
    ("Squeeze", (MATRIX[:, :1], ints(1)), {}),
    ("Squeeze", (MATRIX[:1, :1],), {}),
    ("Reshape", (MATRIX, ints(2, -1)), {}),
    ("Reshape", (MATRIX, ints(0, 2, 2)), {}),
    ("Transpose", (MATRIX,), {}),
    ("Transpose", (MATRIX[None],), {"perm": [1, 2, 0]}),
    ("Slice", (MATRIX, ints(1), ints(3)), {}),
    ("Slice", (MATRIX, ints(-2), ints(99), ints(1)), {}),
    ("Slice", (MATRIX, ints(0, 1), ints(3, 4), ints(0, 1), ints(2, 2)), {}),
    ("Slice", (MATRIX, ints(-1), ints(-(2**63) + 1), ints(0), ints(-1)), {}),
    ("Slice", (MATRIX, ints(99), ints(0), ints(1), ints(-2)), {}),
    ("Slice", (MATRIX, ints(-99), ints(-99), ints(1), ints(-1)), {}),
    ("Slice", (MATRIX, ints(1), ints(-1), ints(1), ints(-1)), {}),
    ("ConstantOfShape", (ints(2, 3),), {}),
    ("Expand", (ints(1, 2), ints(3, 1)), {}),
    ("Range", (np.array(2), np.array(11), np.array(3)), {}),
    ("Range", (np.array(5), np.array(-2), np.array(-2)), {}),
    ("ReduceProd", (ints(2, 3, 4),), {}),
    ("ReduceProd", (MATRIX,), {"keepdims": 0}),
    ("Where", (np.array([True, False, True]), ints(1, 2, 3), ints(7, 8, 9)), {}),
    ("And", (np.array([True, True, False]), np.array([True, False, False])), {}),
    ("NonZero", (ints(0, 3, 0, -1),), {}),
    ("Not", (np.array([True, False]),), {}),
    ("ScatterElements", (ints(0, 0, 0), ints(2, 0), ints(7, 9)), {}),
]  # fmt: skip


def runtime(op: str, arrays, attributes) -> np.ndarray:
    names = [f"i{k}" for k in range(len(arrays))]
    node = helper.make_node(op, names, ["y"], **attributes)
    tensors = [onnx.numpy_helper.from_array(a, n) for a, n in zip(arrays, names, strict=True)]
    graph = helper.make_graph([node], "g", [], [onnx.ValueInfoProto(name="y")], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.graph.output[0].CopyFrom(onnx.shape_inference.infer_shapes(model).graph.output[0])
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {})[0]


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])  # fmt: skip
def test_a_node_of_constants_gives_what_onnxruntime_gives(number):
    op, arrays, attributes = CASES[number]
    got = evaluate(op, list(arrays), attributes)
    expected = runtime(op, arrays, attributes)
    np.testing.assert_array_equal(got, expected)
    assert got.shape == expected.shape


def test_every_operator_of_the_table_has_a_case():
    assert set(TABLE) - {"Shape", "Size"} == {case[0] for case in CASES}


def value_of(text: str, shape: str = "N, 6") -> np.ndarray | None:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[{shape}] x) => (int64[K] y) '
        f"<int64[1] one = {{1}}, int64[1] two = {{2}}> {{ {text} }}"
    )
    graph = ir.from_proto(model).graph
    return Constants(()).array(graph.outputs[0])


def test_sizes_that_are_known_are_computed_around_those_that_are_not():
    assert value_of("s = Shape(x) y = Gather(s, one)").tolist() == [6]
    assert value_of("s = Shape(x) d = Gather(s, one) y = Div(d, two)").tolist() == [3]
    assert value_of("s = Shape <start = 1> (x) y = Identity(s)").tolist() == [6]
    assert value_of("y = Shape(x)") is None
    assert value_of("y = Shape(x)", "2, 6").tolist() == [2, 6]
    assert value_of("s = Shape(x) y = Mul(s, two)") is None
    assert value_of("n = Size(x) y = Identity(n)", "2, 6").tolist() == 12


def test_large_arrays_are_left_to_the_run():
    assert evaluate("Identity", [np.zeros(LIMIT, np.int64)], {}) is not None
    assert evaluate("Identity", [np.zeros(LIMIT + 1, np.int64)], {}) is None
    assert evaluate("ConstantOfShape", [ints(1 << 20)], {}).size == 1 << 20
    assert evaluate("ConstantOfShape", [ints((1 << 20) + 1)], {}) is None
    assert evaluate("Expand", [ints(1), ints(2, 1 << 20)], {}) is None
    assert evaluate("Range", [np.array(0), np.array(1 << 21), np.array(1)], {}) is None
    assert evaluate("Range", [np.array(0), np.array(1 << 21), np.array(4)], {}).size == 1 << 19


def test_what_has_no_result_is_left_to_the_run():
    assert evaluate("Div", [ints(1), ints(0)], {}) is None
    assert evaluate("Gather", [ints(1, 2), ints(5)], {}) is None
    assert evaluate("Slice", [ints(1, 2, 3), ints(2), ints(0), ints(0), ints(0)], {}) is None
    assert evaluate("Div", [np.ones(2), np.ones(2)], {}) is None  # of floats
