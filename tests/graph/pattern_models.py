"""Models that hold a pattern, as the text of a graph, and what is asked of their gradients."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
from onnx import numpy_helper

import onnxgrad

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>\nnet '

GROUPS = """(double[2, 6, 4, 5] x) => (double[2, 6, 4, 5] y) <double[6, 1, 1] w, double[6, 1, 1] b> {
    ones = Constant<value = double[3] {1.0, 1.0, 1.0}>()  zeros = Constant<value = double[3] {0.0, 0.0, 0.0}>()
    as_groups = Constant<value = int64[3] {0, 3, -1}>()
    flat = Reshape(x, as_groups)  n = InstanceNormalization<epsilon = 0.001>(flat, ones, zeros)  whole = Shape(x)
    h = Reshape(n, whole)  s = Mul(h, w)  a = Add(s, b)  y = Tanh(a) }"""
GROUPS_RELU = GROUPS.replace("y = Tanh(a)", "r = Relu(a)  y = Tanh(r)")
RMS = """(float[3, 4] x) => (float[3, 4] y) <float[4] b, float[4] w> {
    two = Constant<value = float {2.0}>()  eps = Constant<value = float {0.001}>()
    one = Constant<value = float {1.0}>()
    h = Add(x, b)  p = Pow(h, two)  m = ReduceMean<axes = [-1]>(p)  v = Add(m, eps)  r = Sqrt(v)  i = Div(one, r)
    n = Mul(h, i)  y = Mul(w, n) }"""
SPLIT_GATE = """(double[2, 6, 5] x) => (double[2, 3, 5] y) <double[6, 1] w> {
    h = Mul(x, w)  a, b = Split<axis = -2>(h)  ta = Tanh(a)  tb = Sigmoid(b)  z = Mul(tb, ta)  y = Sin(z) }"""


def model_of(text: str) -> onnx.ModelProto:
    """The model, its weights drawn."""
    model = onnx.parser.parse_model(HEAD + text)
    for i, info in enumerate(model.graph.value_info):
        kind = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        array = np.random.default_rng(i + 1).normal(size=shape).astype(kind)
        model.graph.initializer.append(numpy_helper.from_array(array, info.name))
    del model.graph.value_info[:]
    return model


def drawn(infos) -> dict[str, np.ndarray]:
    rng, arrays = np.random.default_rng(0), {}
    for info in infos:
        kind = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        arrays[info.name] = rng.normal(size=shape).astype(kind)
        if info.type.tensor_type.elem_type == onnx.TensorProto.BOOL:
            arrays[info.name] = np.tri(*shape, dtype=bool)
    return arrays


def results(model, wrt, **settings):
    """Outputs and gradients, and how many nodes of each operator compute them."""
    gradient = onnxgrad.vjp(model, wrt=wrt, **settings)
    session = onnxgrad.session(gradient, threads=1)
    feeds = drawn(
        [
            i
            for i in gradient.graph.input
            if i.name not in {t.name for t in gradient.graph.initializer}
        ]
    )
    values = session.run(None, feeds)
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, values, strict=True)), Counter(n.op_type for n in gradient.graph.node)


def wanted(model) -> list[str]:
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    inputs = [i.name for i in model.graph.input if i.type.tensor_type.elem_type in floats]
    return [*inputs, *(t.name for t in model.graph.initializer)]
