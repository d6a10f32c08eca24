"""Rows that nobody reads are not computed: the same outputs and gradients, by products of fewer rows."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxgrad

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>\nnet '

# One layer of a transformer on x[2, 5, 32], 2 heads of 16; {mask} makes scores s of m, {end} is made of h2.
_LAYER = """(double[2, 5, 32] x{input}) => ({output}) <double[32, 32] wq, double[32, 32] wk, double[32, 32] wv,
    double[32, 32] wo, double[32] bo, double[32, 64] up, double[64] ub, double[64, 32] down,
    double[32] scale, double[32] shift> {{
    heads = Constant<value = int64[4] {{2, 5, 2, 16}}>()  joined = Constant<value = int64[3] {{0, -1, 32}}>()
    first = Constant<value = int64[1] {{0}}>()  one = Constant<value = int64[1] {{1}}>()
    two = Constant<value = int64[1] {{2}}>()  three = Constant<value = int64[1] {{3}}>()
    zero = Constant<value_int = 0>()  last = Constant<value_int = -1>()
    qm = MatMul(x, wq)  km = MatMul(x, wk)  vm = MatMul(x, wv)
    qr = Reshape(qm, heads)  kr = Reshape(km, heads)  vr = Reshape(vm, heads)
    q = Transpose<perm = [0, 2, 1, 3]>(qr)  v = Transpose<perm = [0, 2, 1, 3]>(vr)
    kt = Transpose<perm = [0, 2, 3, 1]>(kr)
    m = MatMul(q, kt)  {mask}
    p = Softmax(s)  o = MatMul(p, v)  u = Transpose<perm = [0, 2, 1, 3]>(o)  j = Reshape(u, joined)
    om = MatMul(j, wo)  ob = Add(om, bo)  h = Add(x, ob)  n = LayerNormalization<axis = -1>(h, scale, shift)
    a = MatMul(n, up)  ab = Add(a, ub)  g = Tanh(ab)  d = MatMul(g, down)  h2 = Add(n, d)
    {end} }}"""
_PLAIN = "factor = Constant<value = double {0.5}>()  s = Mul(m, factor)"
_BY_ROW = "s = Add(m, bias)"
_BY_KEY = "s = Add(m, mask)"
_FIRST = "y = Gather<axis = 1>(h2, zero)"
_LAST = "y = Gather<axis = -2>(h2, last)"
_KEPT = "y = Gather<axis = 1>(h2, first)"
_RANGE = "y = Slice(h2, one, three, one)"


def layer(mask=_PLAIN, end=_FIRST, output="double[2, 32] y", more=""):
    return _LAYER.format(mask=mask, end=end, output=output, input=more)


# title -> (text, rows that the last product of the layer works on)
MOVED = {
    "the first token": (layer(), 1),
    "the last token": (layer(end=_LAST), 1),
    "one token, its axis kept": (layer(end=_KEPT, output="double[2, 1, 32] y"), 1),
    "a range of tokens": (layer(end=_RANGE, output="double[2, 2, 32] y"), 2),
    "a mask that differs by row": (layer(_BY_ROW, _LAST, more=", double[1, 2, 5, 5] bias"), 1),
    "a mask of keys": (layer(_BY_KEY, more=", double[2, 1, 1, 5] mask"), 1),
}


def model_of(text: str) -> onnx.ModelProto:
    """The model, its weights drawn."""
    model = onnx.parser.parse_model(HEAD + text)
    for i, info in enumerate(model.graph.value_info):
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        array = np.random.default_rng(i + 1).normal(size=shape) * 0.2
        model.graph.initializer.append(numpy_helper.from_array(array, info.name))
    del model.graph.value_info[:]
    return model


def computed(model, **settings):
    """Outputs and gradients by name, and the gradient's model."""
    wrt = [i.name for i in model.graph.input] + [t.name for t in model.graph.initializer]
    gradient = onnxgrad.vjp(model, wrt=wrt, **settings)
    session, rng = onnxgrad.session(gradient, threads=1), np.random.default_rng(0)
    feeds = {i.name: rng.normal(size=[int(d) for d in i.shape]) for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True)), gradient


def queries_of(gradient) -> list[int]:
    """How many rows each attention's cotangents have, by an inferred shape."""
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in gradient.graph.value_info
    }
    attention = [n for n in gradient.graph.node if n.op_type == "AttentionTraining"]
    return [shapes[n.output[0]][1] for n in attention]


def check(text: str):
    model = model_of(text)
    before = [(n.op_type, *n.input, *n.output) for n in model.graph.node]
    ours, gradient = computed(model)
    theirs, whole = computed(model, patterns=False)
    assert [(n.op_type, *n.input, *n.output) for n in model.graph.node] == before
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=1e-12, err_msg=name)
    return gradient, whole


@pytest.mark.parametrize("title", MOVED)
def test_the_gradients_stay_and_the_rows_go(title):
    text, rows = MOVED[title]
    gradient, _ = check(text)
    assert queries_of(gradient) == [rows]


def test_packed_queries_keys_and_values():
    text = """(double[2, 5, 32] x) => (double[2, 32] y) <double[32, 96] w, double[96] b, double[32, 32] wo> {
        shape = Constant<value = int64[5] {2, 5, 3, 2, 16}>()  joined = Constant<value = int64[3] {2, 5, 32}>()
        zero = Constant<value_int = 0>()  one = Constant<value_int = 1>()  two = Constant<value_int = 2>()
        m = MatMul(x, w)  a = Add(m, b)  r = Reshape(a, shape)  t = Transpose<perm = [2, 0, 3, 1, 4]>(r)
        q = Gather<axis = 0>(t, zero)  k = Gather<axis = 0>(t, one)  v = Gather<axis = 0>(t, two)
        kt = Transpose<perm = [0, 1, 3, 2]>(k)  s = MatMul(q, kt)  p = Softmax<axis = -1>(s)  o = MatMul(p, v)
        u = Transpose<perm = [0, 2, 1, 3]>(o)  j = Reshape(u, joined)  h = MatMul(j, wo)
        y = Gather<axis = 1>(h, two) }"""
    gradient, _ = check(text)
    assert queries_of(gradient) == [1]


def test_parts_of_a_split_are_computed_whole():
    """ModernBERT's gates: both come from one node, which compared values with each other."""
    text = layer().replace("g = Tanh(ab)  d = MatMul(g, down)", "left, right = Split<axis = -1>(ab)  "
                           "t = Tanh(left)  g = Mul(t, right)  d = MatMul(g, down)")  # fmt: skip
    gradient, _ = check(text.replace("double[64, 32] down", "double[32, 32] down"))
    assert queries_of(gradient) == [5]


def test_rows_that_somebody_reads_are_computed():
    gradient, _ = check(layer(output="double[2, 32] y, double[2, 5, 32] h2"))
    assert queries_of(gradient) == [5]


def test_two_that_read_other_rows_get_both():
    end = "a0 = Gather<axis = 1>(h2, zero)  a1 = Gather<axis = 1>(h2, last)  y = Mul(a0, a1)"
    gradient, _ = check(layer(end=end))
    assert queries_of(gradient) == [5]


def test_a_value_that_is_read_below_the_layer_is_computed_whole():
    """The residual goes on to a sum over all tokens: the products behind it stop there, those after it shrink."""
    end = "y0 = Gather<axis = 1>(h2, zero)  all = ReduceSum<keepdims = 0>(h, one)  y = Add(y0, all)"
    gradient, _ = check(layer(end=end))
    assert queries_of(gradient) == [5]


def test_causal_attention_keeps_its_rows():
    """Row i reads keys up to i: alone, it would be row 0."""
    mask = """side = Constant<value = int64[2] {5, 5}>()  lit = Constant<value = double[1] {1.0}>()
    dark = Constant<value = double[1] {0.0}>()  low = Constant<value = double[1] {-inf}>()
    full = Expand(lit, side)  lower = Trilu<upper = 0>(full)  hidden = Equal(lower, dark)
    hides = Where(hidden, low, dark)  s = Add(m, hides)"""
    gradient, _ = check(layer(mask, _LAST))
    assert queries_of(gradient) == [5]


def test_a_selection_by_the_data_stays():
    gradient, _ = check(layer(end="i = ReduceMax<keepdims = 0>(x)  c = Cast<to = 7>(i)  d0 = Mul(c, zero)  "
                                  "y = Gather<axis = 1>(h2, d0)"))  # fmt: skip
    assert queries_of(gradient) == [5]


@pytest.mark.parametrize("kind", ["bnb4", "nbits"])
def test_products_with_packed_matrices(kind):
    """A matrix in 4 bits multiplies every row alone, too."""
    rng, size = np.random.default_rng(3), 32
    codes = rng.integers(0, 256, size * size // 2, dtype=np.uint8)
    scales = rng.normal(size=size * size // 32).astype(np.float32)
    if kind == "bnb4":
        node = "MatMulBnb4<K = 32, N = 32, block_size = 32, quant_type = 1>"
        packed = {"w": codes, "scales": scales}
    else:
        node = "MatMulNBits<K = 32, N = 32, block_size = 32, bits = 4>"
        packed = {"w": codes.reshape(size, 1, 16), "scales": scales}
    text = f"""(float[2, 5, 32] x) => (float[2, 32] y) {{
        zero = Constant<value_int = 0>()  h = com.microsoft.{node}(x, w, scales)
        y = Gather<axis = 1>(h, zero) }}"""
    model = onnx.parser.parse_model(HEAD + text)
    for name, array in packed.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    feeds = {"x": rng.normal(size=(2, 5, size)).astype(np.float32)}
    feeds["y_grad"] = rng.normal(size=(2, size)).astype(np.float32)
    found = {}
    for patterns in (True, False):
        gradient = onnxgrad.vjp(model, wrt=["x"], patterns=patterns)
        results = onnxgrad.session(gradient, threads=1).run(["y", "x_grad"], feeds)
        shapes = {v.name: v.type.tensor_type.shape.dim for v in gradient.graph.value_info}
        forward = next(n for n in gradient.graph.node if n.op_type.startswith("MatMul"))
        found[patterns] = results, shapes[forward.output[0]][1].dim_value
    assert (found[True][1], found[False][1]) == (1, 5)
    for ours, theirs in zip(found[True][0], found[False][0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
