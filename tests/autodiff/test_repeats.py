"""Loop and Scan, against central differences."""

import numpy as np
import onnx
import pytest
from autodiff.harness import check_model, make_session, normal

from onnxgrad.autodiff import GradientError, vjp

HEAD = '<ir_version: 8, opset_import: ["" : 17]> net '


def parse(text):
    return onnx.parser.parse_model(HEAD + text)


def count(model, op_type):
    """How many nodes of an operator the model has, bodies included."""

    def inside(graph):
        bodies = [a.g for n in graph.node for a in n.attribute if a.type == a.GRAPH]
        return sum(n.op_type == op_type for n in graph.node) + sum(map(inside, bodies))

    return inside(model.graph)


LOOP = """
(double[N, 3] x, double[3, 3] w, int64 n) => (double[N, 3] y, double[T, N, 3] z)
<bool go = {1}>
{ a = Sin(x)
  y, z = Loop(n, go, a) <body = b (int64 i, bool c, double[?, ?] h)
      => (bool d, double[?, ?] k, double[?, ?] r)
      <double[3] inner = {0.5, -1, 2}> {
        d = Identity(c)  g = MatMul(h, w)  s = Mul(g, inner)  k = Tanh(s)  r = Exp(g) }> }
"""


@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize("ops", ["standard", "fused"])
def test_a_loop_with_a_state_rows_and_weights(steps, ops):
    feeds = {"x": normal(2, 3), "w": normal(3, 3), "n": np.array(steps)}
    if ops == "standard":
        check_model(parse(LOOP), feeds, ["x", "w"])
    else:  # the kernel is inside of a body
        g = vjp(parse(LOOP), wrt=["x", "w"])
        assert count(g, "TanhGrad") == 1
        cotangents = {"y_grad": normal(2, 3, seed=2), "z_grad": normal(steps, 2, 3)}
        got = make_session(g).run(None, feeds | cotangents)
        other = make_session(vjp(parse(LOOP), wrt=["x", "w"], ops="standard"))
        for a, b in zip(got, other.run(None, feeds | cotangents), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-12)


def test_weights_of_a_body_are_trainable():
    g = vjp(parse(LOOP))
    assert [o.name for o in g.graph.output] == ["y", "z", "inner_grad"]
    onnx.checker.check_model(g)


def test_nothing_is_computed_twice():
    g = vjp(parse(LOOP), wrt=["w"], ops="standard")
    assert count(g, "Tanh") == count(g, "Exp") == count(g, "Loop") // 2 == 1
    assert count(g, "MatMul") + count(g, "Gemm") == 3  # h·w; its two gradients


def test_no_gradient_of_a_state_that_nobody_needs():
    """The rows do not depend on the state: its cotangent is not carried back."""
    text = LOOP.replace("r = Exp(g)", "r = Identity(w)").replace(
        "double[T, N, 3] z", "double[T, 3, 3] z"
    )
    g = vjp(parse(text), outputs=["z"], wrt=["w"], ops="standard")
    assert count(g, "MatMul") == 1
    check_model(parse(text), {"x": normal(2, 3), "w": normal(3, 3), "n": np.array(2)}, ["x", "w"])


def test_a_loop_that_ends_by_its_condition():
    text = """
    (double[N] x, double[N] w) => (double[N] y)
    <bool go = {1}, double limit = {4}>
    { y = Loop("", go, x) <body = b (int64 i, bool c, double[?] h) => (bool d, double[?] k) {
        g = Mul(h, w)  k = Add(g, h)  m = ReduceMax <keepdims = 0> (k)  d = Less(m, limit) }> }
    """
    x, w = np.array([0.3, 0.5, -0.2]), np.array([0.6, 0.9, 0.4])
    check_model(parse(text), {"x": x, "w": w}, ["x", "w"])


def test_states_that_are_integers_idle_swapped_or_given_twice():
    text = """
    (double[N] x, double[N] w, int64 n) => (double[N] y, double[N] z, int64 last)
    <bool go = {1}, int64 zero = {0}, int64 one = {1}>
    { y, z, last = Loop(n, go, x, x, zero) <
        body = b (int64 i, bool c, double[?] p, double[?] q, int64 m)
          => (bool d, double[?] q, double[?] r, int64 o) {
            d = Identity(c)  f = Cast <to = 11> (m)  s = Mul(p, w)  t = Mul(s, f)  r = Sin(t)
            o = Add(m, one) }> }
    """
    feeds = {"x": normal(4), "w": normal(4, seed=1), "n": np.array(3)}
    check_model(parse(text), feeds, ["x", "w"])


def test_a_loop_inside_of_a_loop_and_a_branch_inside_of_it():
    text = """
    (double[N] x, double[N] w, int64 n) => (double[N] y)
    <bool go = {1}, int64 two = {2}, int64 one = {1}>
    { y = Loop(n, go, x) <body = outer (int64 i, bool c, double[?] h) => (bool d, double[?] k) {
        d = Identity(c)
        e = Sin(h)
        f = Loop(two, c, e) <body = inner (int64 j, bool c2, double[?] h2)
            => (bool d2, double[?] k2) {
              d2 = Identity(c2)  odd = Equal(i, one)
              g = If(odd) <
                then_branch = yes () => (double[?] a) { b = Mul(h2, w)  a = Exp(b) },
                else_branch = no () => (double[?] a) { a = Mul(e, h2) }>
              k2 = Tanh(g) }>
        k = Add(f, h) }> }
    """
    feeds = {"x": normal(3), "w": normal(3, seed=1), "n": np.array(3)}
    check_model(parse(text), feeds, ["x", "w"])


@pytest.mark.parametrize("c", [True, False])
def test_a_loop_inside_of_a_branch(c):
    text = """
    (double[N] x, double[N] w, bool c, int64 n) => (double[N] y)
    <bool go = {1}>
    { y = If(c) <
        then_branch = yes () => (double[N] a) {
          e = Exp(x)
          a = Loop(n, go, e) <body = b (int64 i, bool g, double[?] h) => (bool d, double[?] k) {
            d = Identity(g)  p = Mul(h, w)  k = Sin(p) }> },
        else_branch = no () => (double[N] a) { a = Mul(x, w) }> }
    """
    feeds = {"x": normal(3), "w": normal(3, seed=1), "c": np.array(c), "n": np.array(3)}
    check_model(parse(text), feeds, ["x", "w"])


SCAN = """
(double[T, N, 3] x, double[3, 3] w, double[N, 3] h0) => (double[N, 3] y, double[T, N, 3] z)
{ y, z = Scan <num_scan_inputs = 1, LAYOUT
    body = b (double[N, 3] h, double[N, 3] u) => (double[N, 3] k, double[N, 3] r) {
      g = MatMul(h, w)  s = Add(g, u)  k = Tanh(s)  r = Mul(s, u) }> (h0, x) }
"""


@pytest.mark.parametrize("read", [0, 1])
@pytest.mark.parametrize("write", [0, 1])
def test_a_scan_in_either_direction(read, write):
    layout = f"scan_input_directions = [{read}], scan_output_directions = [{write}],"
    feeds = {"x": normal(4, 2, 3), "w": normal(3, 3), "h0": normal(2, 3, seed=1)}
    check_model(parse(SCAN.replace("LAYOUT", layout)), feeds, ["x", "w", "h0"])


def test_a_scan_along_other_axes_without_states():
    text = """
    (double[2, T, 3] x, double[3, 2, T] v, double[3] w) => (double[2, 3, T] z)
    { z = Scan <num_scan_inputs = 2, scan_input_axes = [1, -1], scan_output_axes = [2],
        body = b (double[2, 3] u, double[3, 2] t) => (double[2, 3] r) {
          p = Mul(u, w)  q = Transpose(t)  m = Mul(p, q)  r = Exp(m) }> (x, v) }
    """
    feeds = {"x": normal(2, 4, 3), "v": normal(3, 2, 4), "w": normal(3)}
    check_model(parse(text), feeds, ["x", "v", "w"])


def test_a_state_that_grows_is_refused():
    text = """
    (double[N] x, double[N] w, int64 n) => (double[M] y)
    <bool go = {1}>
    { y = Loop(n, go, x) <body = b (int64 i, bool c, double[?] h) => (bool d, double[?] k) {
        d = Identity(c)  p = Exp(h)  k = Concat <axis = 0> (p, w) }> }
    """
    model = parse(text)
    session = make_session(vjp(model, wrt=["x", "w"], ops="standard"))
    feeds = {"x": normal(2), "w": normal(2, seed=1), "n": np.array(3)}
    with pytest.raises(Exception, match="Loop"):  # onnxruntime: rows of one size only
        session.run(None, feeds | {"y_grad": normal(8)})


def test_a_state_whose_rank_changes_is_refused():
    text = """
    (double[N] x, int64 n) => (double y)
    <bool go = {1}, int64[1] axis = {0}>
    { h = Loop(n, go, x) <body = b (int64 i, bool c, double h) => (bool d, double k) {
        d = Identity(c)  p = Exp(h)  k = Unsqueeze(p, axis) }>
      y = ReduceSum <keepdims = 0> (h) }
    """
    model = parse(text)
    for value in (
        *model.graph.node[0].attribute[0].g.input,
        *model.graph.node[0].attribute[0].g.output,
    ):
        if value.name in "hk":
            value.type.tensor_type.ClearField("shape")
    with pytest.raises(GradientError, match=r"the rank of 'h.*' is unknown inside its body"):
        vjp(model, wrt=["x"])


def test_a_problem_inside_of_a_body_is_named():
    text = LOOP.replace("r = Exp(g)", "[odd] r = Bernoulli(g)")
    with pytest.raises(GradientError, match=r"node 'odd' \(Bernoulli\): draws a random sample"):
        vjp(parse(text), wrt=["x"])


HANDED_ON = """
(double[N, 3] x, double[3, 3] w, int64 n) => (double[N, 3] y)
<bool go = {1}>
{ y, after = Loop(n, go, x, w) <body = b (int64 i, bool c, double[N, 3] h, double[3, 3] v)
      => (bool d, double[N, 3] k, double[3, 3] u) {
        d = Identity(c)  g = MatMul(h, v)  k = Tanh(g)  u = Identity(v) }> }
"""


@pytest.mark.parametrize("steps", [0, 3])
def test_a_weight_that_every_trip_hands_on_is_kept_once(steps):
    """tf2onnx passes the weights of a cell through its loop: the way back kept a copy for every trip."""
    model = parse(HANDED_ON)
    check_model(model, {"x": normal(2, 3), "w": normal(3, 3), "n": np.array(steps)}, ["x", "w"])
    made = vjp(model, wrt=["x", "w"], ops="standard")
    shapes = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in made.graph.value_info]
    assert not any(len(s) == 3 and s[1:] == [3, 3] for s in shapes)
