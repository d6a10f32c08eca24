"""Between which numbers a value lies: as close as the operators promise, and never too close."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from onnxgrad.graph.ranges import Ranges, holds_probabilities

INF = math.inf
S = "s = Sigmoid(x)"  # from 0 to 1
T = "t = Tanh(x)"  # from -1 to 1
HALF, TWO = "Constant<value = float {0.5}>()", "Constant<value = float {2}>()"
IF = """y = If(c) <then_branch = a () => (float[2, 3] p) { p = Sigmoid(x) },
                  else_branch = b () => (float[2, 3] q) { q = %s(x) }>"""

CASES = {
    "y = Sigmoid(x)": (0, 1),
    "y = Identity(x)": (-INF, INF),
    "y = Relu(x)": (0, INF),
    f"{T} y = Relu(t)": (0, 1),
    f"{T} y = Abs(t)": (0, 1),
    f"{S} d = {TWO} m = Add(s, d) y = Abs(m)": (2, 3),
    f"{S} d = {TWO} m = Sub(s, d) y = Abs(m)": (1, 2),
    f"{S} y = Neg(s)": (-1, 0),
    f"{T} y = Exp(t)": (math.exp(-1), math.e),
    f"{S} y = Sqrt(s)": (0, 1),
    f"{S} {T} y = Add(s, t)": (-1, 2),
    f"{S} {T} y = Sub(s, t)": (-1, 2),
    f"{S} {T} y = Mul(s, t)": (-1, 1),
    f"{T} y = Mul(t, t)": (0, 1),
    f"{S} d = {TWO} y = Mul(s, d)": (0, 2),
    f"{S} d = {TWO} y = Div(s, d)": (0, 0.5),
    f"{T} d = {TWO} m = Add(t, d) y = Reciprocal(m)": (1 / 3, 1),
    f"{T} d = {TWO} m = Sub(t, d) y = Reciprocal(m)": (-1, -1 / 3),
    f"{T} y = Reciprocal(t)": (-INF, INF),
    f"{S} y = Reciprocal(s)": (1, INF),
    f"{S} {T} y = Concat<axis = 0>(s, t)": (-1, 1),
    f"{S} {T} y = Mean(s, t)": (-1, 1),
    f"{S} {T} y = Sum(s, s, t)": (-1, 3),
    f"{S} {T} h = {HALF} y = Max(s, t, h)": (0.5, 1),
    f"{S} {T} h = {HALF} y = Min(s, t, h)": (-1, 0.5),
    f"{S} {T} y = Where(c, s, t)": (-1, 1),
    f"h = {HALF} d = {TWO} y = Clip(x, h, d)": (0.5, 2),
    f"h = {HALF} y = Clip(x, h)": (0.5, INF),
    f"d = {TWO} y = Clip(x, , d)": (-INF, 2),
    f"{T} h = {HALF} y = Clip(t, h)": (0.5, 1),
    "y = LogSoftmax(x)": (-INF, 0),
    "y = Softplus(x)": (0, INF),
    "e = Exp(x) n = ReduceSum<keepdims = 1>(e) y = Div(e, n)": (0, 1),
    f"e = Exp(x) n = ReduceSum<keepdims = 1>(e) h = {HALF} m = Add(n, h) y = Div(e, m)": (0, 1),
    "n = ReduceSum<keepdims = 1>(x) y = Div(x, n)": (-INF, INF),
    f"e = Exp(x) {S} n = ReduceSum<keepdims = 1>(s) y = Div(e, n)": (-INF, INF),
    f"{S} y = Transpose(s)": (0, 1),
    IF % "Sigmoid": (0, 1),
    IF % "Tanh": (-1, 1),
    IF % "Neg": (-INF, INF),
}


def model(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[2, 3] x, bool c) => (float[A, B] y) {{ {body} }}""")


@pytest.mark.parametrize("body", CASES)
def test_a_range_is_what_the_operators_promise(body):
    read = ir.from_proto(model(body))
    assert Ranges().of(read.graph.outputs[0]) == pytest.approx(CASES[body])
    low, high = CASES[body]
    probable = low >= 0 and high <= 1 and high > low
    assert holds_probabilities(read.graph.outputs[0]) == probable


@pytest.mark.parametrize("body", CASES)
def test_no_number_lies_outside(body):
    run = ReferenceEvaluator(model(body))
    low, high = CASES[body]
    for size in (1e-3, 1, 10):
        x = (size * np.random.default_rng(0).standard_normal((2, 3))).astype(np.float32)
        for c in (True, False):
            (y,) = run.run(None, {"x": x, "c": np.array(c)})
            assert (y >= low - 1e-6).all()
            assert (y <= high + 1e-6).all()


def test_what_training_changes_tells_nothing():
    proto = model("s = Sigmoid(x) y = Add(s, w)")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(2, np.float32), "w"))
    read = ir.from_proto(proto)
    y, w = read.graph.outputs[0], read.graph.initializers["w"]
    assert Ranges().of(y) == (2, 3)
    assert Ranges({w}).of(y) == (-INF, INF)


def test_a_long_tail_is_not_followed():
    nodes = " ".join(f"v{i} = Identity(v{i - 1})" for i in range(1, 100))
    read = ir.from_proto(model(f"v0 = Sigmoid(x) {nodes} y = Identity(v99)"))
    assert Ranges().of(read.graph.outputs[0]) == (-INF, INF)
    assert Ranges().of(read.graph[50].outputs[0]) == (0, 1)
