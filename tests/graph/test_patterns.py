"""What exporters write out is seen again: the same gradients by fewer nodes, and only where it is the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from graph.pattern_models import GROUPS, GROUPS_RELU, RMS, SPLIT_GATE, model_of, results, wanted
from onnx import numpy_helper

import onnxgrad
from onnxgrad.graph.load import load
from onnxgrad.graph.patterns import see_patterns
from onnxgrad.graph.patterns.activations import see_activation
from onnxgrad.graph.patterns.norms import see_norm

# Each is the text of a graph in double: inputs, outputs, nodes. Weights are drawn by name and shape.
_PACKED = """(double[2, 5, 24] x) => (double[2, 5, 8] y) {{
    shape = Constant<value = int64[5] {{2, 5, 3, 2, 4}}>()  joined = Constant<value = int64[3] {{2, 5, 8}}>()
    first = Constant<value = int64[1] {{0}}>()
    r = Reshape(x, shape)  t = Transpose<perm = [2, 0, 3, 1, 4]>(r)
    {split}
    kt = Transpose<perm = [0, 1, 3, 2]>(k)
    {scaled}
    p = Softmax<axis = -1>(s)  o = MatMul(p, v)
    u = Transpose<perm = [0, 2, 1, 3]>(o)  y = Reshape(u, joined) }}"""
_SPLIT = """a, b, c = Split<axis = 0>(t)
    q = Squeeze(a, first)  k = Squeeze(b, first)  v = Squeeze(c, first)"""
_SLICES = """one = Constant<value = int64[1] {1}>()  two = Constant<value = int64[1] {2}>()
    three = Constant<value = int64[1] {3}>()
    a = Slice(t, first, one, first)  b = Slice(t, one, two, first)  c = Slice(t, two, three, first)
    q = Squeeze(a, first)  k = Squeeze(b, first)  v = Squeeze(c, first)"""
_GATHERS = """zero = Constant<value_int = 0>()  one = Constant<value_int = 1>()  two = Constant<value_int = 2>()
    q = Gather<axis = 0>(t, zero)  k = Gather<axis = 0>(t, one)  v = Gather<axis = 0>(t, two)"""
_BOTH_SCALED = """width = Constant<value = double[1] {16.0}>()  root = Sqrt(width)
    half = Sqrt(root)  qs = Div(q, half)  ks = Div(kt, half)  s = MatMul(qs, ks)"""
_SCALED = "factor = Constant<value = double {0.5}>()  m = MatMul(q, kt)  s = Mul(m, factor)"

_CAUSAL = """(double[2, 5, 24] x) => (double[2, 5, 8] y) {
    heads = Constant<value = int64[4] {2, 5, 2, 4}>()  joined = Constant<value = int64[3] {2, 5, 8}>()
    a, b, c = Split<axis = 2>(x)
    qr = Reshape(a, heads)  kr = Reshape(b, heads)  vr = Reshape(c, heads)
    q = Transpose<perm = [0, 2, 1, 3]>(qr)  v = Transpose<perm = [0, 2, 1, 3]>(vr)
    kt = Transpose<perm = [0, 2, 3, 1]>(kr)
    side = Constant<value = int64[2] {5, 5}>()  one = Constant<value = double[1] {1.0}>()
    zero = Constant<value = double[1] {0.0}>()  low = Constant<value = double[1] {-inf}>()
    full = Expand(one, side)  lower = Trilu<upper = 0>(full)  hidden = Equal(lower, zero)
    mask = Where(hidden, low, zero)
    c2 = Constant<value = double {0.5}>()  m = MatMul(q, kt)  ms = Mul(m, c2)  s = Add(ms, mask)
    p = Softmax<axis = -1>(s)  o = MatMul(p, v)
    u = Transpose<perm = [0, 2, 1, 3]>(o)  y = Reshape(u, joined) }"""

_SEPARATE = """(double[2, 5, 6] x, double[2, 7, 6] z, double[2, 1, 1, 7] mask) => (double[2, 5, 6] y)
    <double[6, 6] wq, double[6, 6] wk, double[6, 6] wv, double[1, 2, 5, 7] bias> {
    heads = Constant<value = int64[4] {2, -1, 2, 3}>()  joined = Constant<value = int64[3] {2, 5, 6}>()
    qm = MatMul(x, wq)  km = MatMul(z, wk)  vm = MatMul(z, wv)
    qr = Reshape(qm, heads)  kr = Reshape(km, heads)  vr = Reshape(vm, heads)
    q = Transpose<perm = [0, 2, 1, 3]>(qr)  v = Transpose<perm = [0, 2, 1, 3]>(vr)
    kt = Transpose<perm = [0, 2, 3, 1]>(kr)
    m = MatMul(q, kt)  s1 = Add(m, bias)  s = Add(mask, s1)
    p = Softmax(s)  o = MatMul(p, v)
    u = Transpose<perm = [0, 2, 1, 3]>(o)  y = Reshape(u, joined) }"""

_HIDDEN = """(double[2, 5, 6] q, double[2, 5, 6] k, double[2, 5, 6] v, bool[5, 5] reads) => (double[2, 5, 6] y) {
    low = Constant<value = double {-inf}>()
    kt = Transpose<perm = [0, 2, 1]>(k)  m = MatMul(q, kt)  s = Where(reads, m, low)
    p = Softmax(s)  y = MatMul(p, v) }"""

_ERF = """(float[3, 4] x) => (float[3, 4] y) <float[4] b> {
    root = Constant<value = float {1.4142135623730951}>()  one = Constant<value = float {1.0}>()
    half = Constant<value = float {0.5}>()
    h = Add(x, b)  d = Div(h, root)  e = Erf(d)  f = Add(e, one)  g = Mul(h, f)  y = Mul(g, half) }"""
_ERF_OTHER = """(float[3, 4] x) => (float[3, 4] y) <float[4] b> {
    root = Constant<value = float {0.7071067811865476}>()  one = Constant<value = float {1.0}>()
    half = Constant<value = float {0.5}>()
    h = Add(x, b)  d = Mul(root, h)  e = Erf(d)  f = Add(one, e)  g = Mul(f, half)  y = Mul(g, h) }"""
_TANH = """(double[3, 4] x) => (double[3, 4] y) <double[4] b> {
    a = Constant<value = double {0.7978845608028654}>()  c = Constant<value = double {0.044715}>()
    one = Constant<value = double {1.0}>()  half = Constant<value = double {0.5}>()
    three = Constant<value = double {3.0}>()
    h = Add(x, b)  h3 = Pow(h, three)  hc = Mul(c, h3)  hs = Add(h, hc)  u = Mul(a, hs)  t = Tanh(u)
    f = Add(t, one)  hh = Mul(half, h)  y = Mul(hh, f) }"""
_SILU = "(double[3, 4] x) => (double[3, 4] y) <double[4] b> { h = Add(x, b)  s = Sigmoid(h)  y = Mul(s, h) }"
_QUICK = """(double[3, 4] x) => (double[3, 4] y) <double[4] b> { a = Constant<value = double {1.5}>()
    h = Add(x, b)  z = Mul(h, a)  s = Sigmoid(z)  y = Mul(h, s) }"""
_HARD = """(float[3, 40] x) => (float[3, 40] y) <float[40] b> {
    none = Constant<value = float {0.0}>()  half = Constant<value = float {0.5}>()
    one = Constant<value = float {1.0}>()  three = Constant<value = float {3.0}>()
    four = Constant<value = float {4.0}>()  six = Constant<value = float {6.0}>()
    large = Mul(x, four)  h = Add(large, b)  PARTS }"""
_RELU6 = _HARD.replace(
    "PARTS", "t = Add(h, three)  c = Clip(t, none, six)  m = Mul(h, c)  y = Div(m, six)"
)
_CLIPPED = _HARD.replace(
    "PARTS", "s = Div(h, six)  t = Add(s, half)  c = Clip(t, none, one)  y = Mul(c, h)"
)
_GATED = _HARD.replace("PARTS", "g = HardSigmoid<alpha = 0.16666667, beta = 0.5>(h)  y = Mul(h, g)")
_LAYER = """(float[3, 4] x) => (float[3, 4] y) <float[4] b, float[4] w, float[4] shift> {
    two = Constant<value = float {2.0}>()  eps = Constant<value = float {0.001}>()
    h = Add(x, b)  a = ReduceMean<axes = [-1]>(h)  d = Sub(h, a)  p = Pow(d, two)  m = ReduceMean<axes = [1]>(p)
    v = Add(m, eps)  r = Sqrt(v)  n = Div(d, r)  s = Mul(n, w)  y = Add(s, shift) }"""
_LINEAR = """(double[3, 5, 40] x) => (double[3, 5, 36] y) <double[40, 36] w, double[36] b> {
    m = MatMul(x, w)  h = Add(b, m)  y = Tanh(h) }"""
_NO_BIAS = """(double[3, 5, 40] x) => (double[3, 5, 36] y) <double[40, 36] w> {
    m = MatMul(x, w)  y = Tanh(m) }"""
_GROUPS_ALONE = """(double[2, 6, 4, 5] x) => (double[2, 6, 4, 5] y) <double[3] w, double[3] b> {
    as_groups = Constant<value = int64[3] {0, 3, -1}>()  whole = Constant<value = int64[4] {2, 6, 4, 5}>()
    flat = Reshape(x, as_groups)  n = InstanceNormalization(flat, w, b)  h = Reshape(n, whole)  y = Tanh(h) }"""
_CHUNKS = """(double[2, 6, 5] x) => (double[2, 3, 5] y) <double[6, 1] w> {
    at = Constant<value = int64[1] {1}>()  zero = Constant<value = int64[1] {0}>()
    three = Constant<value = int64[1] {3}>()  far = Constant<value = int64[1] {99}>()
    h = Mul(x, w)  a = Slice(h, zero, three, at)  b = Slice(h, three, far, at)
    ta = Tanh(a)  tb = Sigmoid(b)  y = Mul(ta, tb) }"""
_PADDED = """(float[2, 3, 9] x) => (float[2, 4, 9] y) <float[4, 3, 3] w, float[4] b> {
    pads = Constant<value = int64[6] {0, 0, 4, 0, 0, 0}>()
    h = Tanh(x)  p = Pad(h, pads)  c = Conv<dilations = [2]>(p, w, b)  y = Tanh(c) }"""

SEEN = {
    "packed, split, both scaled": (
        _PACKED.format(split=_SPLIT, scaled=_BOTH_SCALED),
        "AttentionTraining",
    ),
    "packed, slices": (_PACKED.format(split=_SLICES, scaled=_SCALED), "AttentionTraining"),
    "packed, gathers": (_PACKED.format(split=_GATHERS, scaled=_SCALED), "AttentionTraining"),
    "causal, split before the heads": (_CAUSAL, "AttentionTraining"),
    "separate, two masks, no scale": (_SEPARATE, "AttentionTraining"),
    "batches and heads in one, hidden": (_HIDDEN, "AttentionTraining"),
    "a linear layer": (_LINEAR, "LinearTraining"),
    "a linear layer without a bias": (_NO_BIAS, "LinearTraining"),
    "Gelu by Erf": (_ERF, "GeluTraining"),
    "Gelu by Erf in another order": (_ERF_OTHER, "GeluTraining"),
    "Gelu by Tanh": (_TANH, "GeluTraining"),
    "SiLU": (_SILU, "GeluTraining"),
    "QuickGelu": (_QUICK, "GeluTraining"),
    "HardSwish": (_HARD.replace("PARTS", "y = HardSwish(h)"), "GeluTraining"),
    "HardSwish by a relu6": (_RELU6, "GeluTraining"),
    "HardSwish by a clip": (_CLIPPED, "GeluTraining"),
    "HardSwish by a hard sigmoid": (_GATED, "GeluTraining"),
    "RMSNorm": (RMS, "SimplifiedLayerNormalization"),
    "RMSNorm without a scale": (
        RMS.replace("y = Mul(w, n)", "s = Sin(n)  y = Mul(w, s)"),
        "SimplifiedLayerNormalization",
    ),
    "RMSNorm with one factor for all": (
        RMS.replace("float[4] w", "float[1] w"),
        "SimplifiedLayerNormalization",
    ),
    "RMSNorm that two layers scale": (
        RMS.replace("y = Mul(w, n)", "s = Mul(w, n)  t = Mul(n, b)  u = Sin(s)  y = Mul(t, u)"),
        "SimplifiedLayerNormalization",
    ),
    "LayerNorm": (_LAYER, "LayerNormalization"),
    "LayerNorm without a shift": (
        _LAYER.replace("y = Add(s, shift)", "t = Sin(s)  y = Add(t, shift)"),
        "LayerNormalization",
    ),
    "LayerNorm without a scale": (
        _LAYER.replace(
            "s = Mul(n, w)  y = Add(s, shift)", "t = Sin(n)  s = Mul(t, w)  y = Add(s, shift)"
        ),
        "LayerNormalization",
    ),
    "slices that share a tensor out": (_CHUNKS.replace("Mul(ta", "Sub(ta"), "Split"),
    "a gate of slices": (_CHUNKS, "GateTraining"),
    "a gate of a split": (SPLIT_GATE, "GateTraining"),
    "a gated linear unit": (
        SPLIT_GATE.replace("ta = Tanh(a)  ", "").replace("Mul(tb, ta)", "Mul(tb, a)"),
        "GateTraining",
    ),
    "GroupNorm": (GROUPS, "GroupNormalizationGrad"),
    "GroupNorm, a scale per group": (_GROUPS_ALONE, "GroupNormalizationGrad"),
    "GroupNorm and Relu": (GROUPS_RELU, "GroupNormalizationGrad"),
}


@pytest.mark.parametrize("title", SEEN)
def test_a_pattern_gives_the_gradients_of_its_parts(title):
    text, operator = SEEN[title]
    model = model_of(text)
    before = [(n.op_type, *n.input, *n.output) for n in model.graph.node]
    ours, with_pattern = results(model, wanted(model))
    theirs, without = results(model, wanted(model), patterns=False)
    assert with_pattern[operator] == 1
    assert without[operator] == 0
    assert sum(with_pattern.values()) <= sum(without.values())
    assert [(n.op_type, *n.input, *n.output) for n in model.graph.node] == before
    double = ours["y"].dtype == np.float64
    for name, value in theirs.items():
        np.testing.assert_allclose(
            ours[name], value, rtol=0, atol=1e-12 if double else 2e-6, err_msg=name
        )


@pytest.mark.parametrize(("pads", "own"), [("4, 0, 0, 0", ""), ("3, 0, 0, 0", "pads = [1, 0], ")])
def test_a_convolution_pads_by_itself(pads, own):
    text = _PADDED.replace("4, 0, 0, 0", pads).replace("<dil", f"<{own}dil")
    ours, count = results(model_of(text), ["x", "w", "b"])
    theirs, without = results(model_of(text), ["x", "w", "b"], patterns=False)
    assert (count["Pad"], count["Slice"]) == (0, 0)
    assert without["Pad"] >= 1
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=0, atol=2e-6, err_msg=name)


def test_packed_projections_are_read_where_they_lie():
    for title in (
        "packed, split, both scaled",
        "packed, slices",
        "packed, gathers",
        "causal, split before the heads",
    ):
        _, count = results(model_of(SEEN[title][0]), ["x"])
        left = {
            "Transpose",
            "Split",
            "Slice",
            "Gather",
            "Squeeze",
            "Concat",
            "SliceGrad",
            "MatMul",
            "Softmax",
            "Add",
        }
        assert not left & set(count), f"{title}: {dict(count)}"


NOT_SEEN = {
    "the weights are an output": _SEPARATE.replace(
        "=> (double[2, 5, 6] y)", "=> (double[2, 5, 6] y, double[2, 2, 5, 7] p)"),
    "softmax over the queries": _SEPARATE.replace("Softmax(s)", "Softmax<axis = 2>(s)"),
    "the scale comes after the mask": _CAUSAL.replace(
        "ms = Mul(m, c2)  s = Add(ms, mask)", "ms = Add(m, mask)  s = Mul(ms, c2)"),
    "weights of few columns": _LINEAR.replace("36", "7"),
    "another root": _ERF.replace("1.4142135623730951", "1.5"),
    "another half": _ERF.replace("{0.5}", "{0.25}"),
    "another x": _ERF.replace("g = Mul(h, f)", "g = Mul(x, f)"),
    "a cube of another": _TANH.replace("0.044715", "0.05"),
    "a hard gate of another x": _GATED.replace("Mul(h, g)", "Mul(large, g)"),
    "a hard gate of another slope": _GATED.replace("0.16666667", "0.2"),
    "a clip of other bounds": _RELU6.replace("Clip(t, none, six)", "Clip(t, none, four)"),
    "a clip without a bound": _RELU6.replace("Clip(t, none, six)", "Clip(t, none)"),
    "a relu6 that is not divided": _RELU6.replace("Div(m, six)", "Div(m, four)"),
    "a clip that others read": _CLIPPED.replace("y = Mul(c, h)", "e = Mul(c, h)  y = Add(e, c)"),
    "the mean of all": RMS.replace("axes = [-1]", "axes = [0]"),
    "a scale per group and one per channel": GROUPS.replace("{1.0, 1.0, 1.0}", "{1.0, 2.0, 1.0}"),
    "slices that leave something": _CHUNKS.replace("{99}", "{5}").replace(
        "tb = Sigmoid(b)", "tb = ReduceSum<keepdims = 1>(b, at)"),
    "slices that overlap": _CHUNKS.replace("b = Slice(h, three", "b = Slice(h, at").replace(
        "tb = Sigmoid(b)", "tb = ReduceSum<keepdims = 1>(b, at)"),
    "a pad of channels": _PADDED.replace("{0, 0, 4, 0, 0, 0}", "{0, 1, 4, 0, 0, 0}").replace("[4, 3, 3]", "[4, 4, 3]"),
    "a pad that cuts off": _PADDED.replace("4, 0, 0, 0}", "5, 0, 0, -1}"),
    "a pad by the edge": _PADDED.replace("Pad(h", 'Pad<mode = "edge">(h'),
    "an inner value is an output": _ERF.replace("=> (float[3, 4] y)", "=> (float[3, 4] y, float[3, 4] f)"),
}  # fmt: skip


@pytest.mark.parametrize("title", NOT_SEEN)
def test_what_is_not_quite_the_pattern_stays(title):
    model = model_of(NOT_SEEN[title])
    ours, count = results(model, wanted(model))
    theirs, without = results(model, wanted(model), patterns=False)
    for some in (count, without):
        some.pop("Expand", None)  # of means: test_spreads.py
    assert count == without
    assert all(np.array_equal(ours[name], value) for name, value in theirs.items())


def test_a_trained_scale_is_no_constant():
    text = _PACKED.format(split=_SPLIT, scaled="m = MatMul(q, kt)  s = Mul(m, factor)")
    model = model_of(text.replace("(double[2, 5, 8] y)", "(double[2, 5, 8] y) <double[1] factor>"))
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([0.5]), "factor"))
    _, trained = results(model, ["x", "factor"])
    _, fixed = results(model, ["x"])
    assert trained["AttentionTraining"] == 0
    assert fixed["AttentionTraining"] == 1


def test_standard_operators_only_means_no_patterns():
    _, count = results(model_of(_SILU), ["x"], ops="standard")
    assert count["GeluTraining"] == 0


def test_a_trainer_learns_the_same_with_and_without_and_writes_the_same_nodes(tmp_path):
    text = _SEPARATE.replace("double", "float")
    model = model_of(text)
    data = {"x": np.ones((2, 5, 6), np.float32), "z": np.full((2, 7, 6), 0.5, np.float32),
            "mask": np.zeros((2, 1, 1, 7), np.float32)}  # fmt: skip
    target = np.random.default_rng(3).normal(size=(2, 5, 6)).astype(np.float32)
    losses = []
    for patterns in (True, False):
        trainer = onnxgrad.Trainer(model, loss="mse", lr=0.01, threads=1, patterns=patterns)
        losses.append([trainer.step(data, target)["loss"] for _ in range(3)])
        trainer.save(tmp_path / "tuned.onnx")
        nodes = onnx.load(tmp_path / "tuned.onnx").graph.node
        assert [n.op_type for n in nodes if n.op_type != "Constant"] == [
            n.op_type for n in model.graph.node if n.op_type != "Constant"
        ]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_patterns_are_counted_and_only_those_asked_for_are_seen():
    gelu = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 2] x) => (float[N, 2] y) <float r = {1.4142135}, float one = {1}, float half = {0.5}>
        { d = Div(x, r) e = Erf(d) f = Add(e, one) g = Mul(x, f) y = Mul(g, half) }""")
    for patterns, found in (((see_activation,), {"GeluTraining": 1}), ((see_norm,), {}), ((), {})):
        model = load(gelu)
        assert see_patterns(model, (), patterns) == found
        assert ("Erf" in {n.op_type for n in model.graph}) == (not found)
    assert see_patterns(load(gelu), ()) == {"GeluTraining": 1}
