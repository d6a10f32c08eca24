"""If with weights in its bodies, and lists of tensors."""

import numpy as np
import onnx
import pytest
from autodiff.harness import check_model, make_session, normal
from onnx import TensorProto, helper, numpy_helper

from onnxgrad.autodiff import GradientError, vjp

BRANCHES = """
<ir_version: 8, opset_import: ["" : 17]>
net (double[N, 3] x, double[3, 2] w, bool c) => (double[N, 2] y)
{ h = Tanh(x)
  y = If(c) <
    then_branch = yes () => (double[N, 2] a)
      <double[3, 2] inner = {1, 0, 1, 1, 2, 3}> {
        e = Exp(h)  s = Add(w, inner)  m = MatMul(e, s)  a = Mul(m, m) },
    else_branch = no () => (double[N, 2] a) {
        e = Constant <value = double[2] {1, 2}> ()  m = MatMul(h, w)  a = Mul(m, e) }>
}
"""
NESTED = """
<ir_version: 8, opset_import: ["" : 17]>
net (double[N] x, double[N] w, bool c, bool d) => (double[N] y, double[N] z)
{ y, z = If(c) <
    then_branch = yes () => (double[N] a, double[N] b) {
        s = Sin(x)
        a, b = If(d) <
          then_branch = yesyes () => (double[N] p, double[N] q) {
              e = Exp(s)  p = Mul(e, w)  q = Identity(w) },
          else_branch = yesno () => (double[N] p, double[N] q) {
              p = Mul(s, s)  q = Sigmoid(w) }> },
    else_branch = no () => (double[N] a, double[N] b) { a = Identity(w)  b = Mul(a, a) }>
}
"""


@pytest.mark.parametrize("c", [True, False])
@pytest.mark.parametrize("ops", ["standard", "fused"])
def test_weights_inside_and_outside_of_branches(c, ops):
    model = onnx.parser.parse_model(BRANCHES)
    outputs = [o.name for o in vjp(model, ops=ops).graph.output]
    assert outputs == ["y", "inner_grad", "e_1_grad"]  # e is a name of both bodies
    feeds = {"x": normal(4, 3), "w": normal(3, 2), "c": np.array(c)}
    check_model(model, feeds, ["x", "w"], ops)


@pytest.mark.parametrize("c", [True, False])
def test_a_weight_of_the_branch_not_taken_gets_zeros(c):
    g = vjp(onnx.parser.parse_model(BRANCHES), parameters="inputs", wrt=["inner"])
    onnx.checker.check_model(g, full_check=True)
    feeds = {"x": normal(4, 3), "w": normal(3, 2), "c": np.array(c), "y_grad": normal(4, 2)}
    got = make_session(g).run(["inner_grad"], feeds | {"inner": normal(3, 2, seed=1)})[0]
    assert got.shape == (3, 2)
    assert bool(np.any(got)) == c


@pytest.mark.parametrize(("c", "d"), [(True, True), (True, False), (False, False)])
def test_nested_branches(c, d):
    feeds = {"x": normal(4), "w": normal(4, seed=1), "c": np.array(c), "d": np.array(d)}
    check_model(onnx.parser.parse_model(NESTED), feeds, ["x", "w"])


def test_nothing_is_computed_twice():
    g = vjp(onnx.parser.parse_model(BRANCHES), wrt=["x", "w"], ops="standard")
    branches = [n for n in g.graph.node if n.op_type == "If"]
    forward, backward = ([a.g for a in n.attribute] for n in branches)
    assert [n.op_type for n in forward[0].node].count("Exp") == 1
    assert not any(n.op_type == "Exp" for body in backward for n in body.node)


def test_a_branch_that_is_always_taken_takes_the_place_of_its_node():
    model = onnx.parser.parse_model(BRANCHES.replace(", bool c)", ")").replace(
        "{ h =", "<bool c = {0}> { h ="))  # fmt: skip
    g = vjp(model, wrt=["x"])
    assert not any(n.op_type == "If" for n in g.graph.node)
    check_model(model, {"x": normal(4, 3), "w": normal(3, 2)}, ["x", "w"])


def test_a_problem_inside_a_branch_is_named():
    model = onnx.parser.parse_model(BRANCHES.replace("a = Mul(m, m)", "a = my.Fancy(m)").replace(
        '["" : 17]', '["" : 17, "my" : 1]'))  # fmt: skip
    with pytest.raises(GradientError, match=r"the node that makes 'a' \(my.Fancy\): has no grad"):
        vjp(model, wrt=["x"])


SPLIT = "s = SplitToSequence <axis = 1> (x, sizes)"
LISTS = {
    "sizes given": f"{SPLIT} a = SequenceAt(s, one) y = Mul(a, a)",
    "from the end": f"{SPLIT} a = SequenceAt(s, minus) b = SequenceAt(s, one) y = Mul(a, b)",
    "equal parts": "s = SplitToSequence <axis = 1> (x, two) a = SequenceAt(s, zero) y = Exp(a)",
    "a rest": "s = SplitToSequence <axis = 0> (x, two) a = SequenceAt(s, one) y = Exp(a)",
    "rows": "s = SplitToSequence <keepdims = 0> (x) a = SequenceAt(s, one) y = Exp(a)",
    "rows, kept": "s = SplitToSequence(x) a = SequenceAt(s, minus) y = Exp(a)",
    "put together again": f"{SPLIT} y = ConcatFromSequence <axis = 1> (s)",
    "along a new axis": f"{SPLIT} y = ConcatFromSequence <axis = 0, new_axis = 1> (s)",
    "made from tensors": "b = Sin(x) s = SequenceConstruct(x, b) "
                         "y = ConcatFromSequence <axis = 0> (s)",
    "grown and cut": "e = SequenceEmpty <dtype = 11> () b = Sin(x) t = SequenceInsert(e, x) "
                     "u = SequenceInsert(t, b, zero) v = SequenceInsert(u, x) "
                     "s = SequenceErase(v, one) y = ConcatFromSequence <axis = 0> (s)",
    "one part, joined": "s = SplitToSequence <axis = 1> (x, four) t = ConcatFromSequence <axis = 1> (s) y = Exp(t)",
    "one part": "s = SplitToSequence <axis = 1> (x, four) a = SequenceAt(s, zero) y = Exp(a)",
    "put before the last": "b = Sin(x) c = Exp(x) t = SequenceConstruct(x, b) s = SequenceInsert(t, c, minus) "
                           "a = SequenceAt(s, one) d = SequenceAt(s, two) y = Mul(a, d)",
    "without the last": "b = Sin(x) c = Exp(x) t = SequenceConstruct(x, b, c) s = SequenceErase(t) "
                        "y = ConcatFromSequence <axis = 0> (s)",
    "without the last but one": "b = Sin(x) c = Exp(x) t = SequenceConstruct(x, b, c) s = SequenceErase(t, before) "
                                "y = ConcatFromSequence <axis = 0> (s)",
}  # fmt: skip


def _list_model(text, rows):
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (double[{rows}, 4] x) => (double y)
        <int64[2] sizes = {{2, 2}}, int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}},
         int64 four = {{4}}, int64 minus = {{-1}}, int64 before = {{-2}}>
        {{ {text} }}""")


@pytest.mark.parametrize("what", LISTS)
@pytest.mark.parametrize("rows", ["3", "N"])
def test_lists(what, rows):
    model = _list_model(LISTS[what].replace("Construct(x, b)", "Construct(x, b)"), rows)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.DOUBLE, None))
    check_model(model, {"x": normal(3, 4)}, ["x"])


def test_a_list_of_unknown_length_is_refused():
    text = "s = SplitToSequence(x, two) y = ConcatFromSequence <axis = 0> (s)"
    model = _list_model(text, "N")
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.DOUBLE, None))
    with pytest.raises(GradientError, match="a list of tensors whose length only the run knows"):
        vjp(model, wrt=["x"])


def test_a_list_that_is_an_output_stays():
    text = f"{SPLIT} a = SequenceAt(s, one) y = Exp(a)"
    model = _list_model(text, "N")
    info = helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)
    model.graph.output[0].CopyFrom(info)
    model.graph.output.append(helper.make_tensor_sequence_value_info("s", TensorProto.DOUBLE, None))
    g = vjp(model, outputs=["y"], wrt=["x"])
    out = make_session(g).run(None, {"x": normal(3, 4), "y_grad": np.ones((3, 2))})
    assert isinstance(out[1], list)
    assert out[2].shape == (3, 4)


def test_constants_and_weights_of_branches_keep_their_bytes():
    model = onnx.parser.parse_model(BRANCHES)
    g = vjp(model, wrt=["x"])
    arrays = {t.name: numpy_helper.to_array(t) for t in g.graph.initializer}
    assert arrays["inner"].tolist() == [[1, 0], [1, 1], [2, 3]]


def test_a_declared_shape_that_only_one_branch_has():
    """torch.onnx writes a Squeeze that may not happen like this, with the shape after it."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (double[1, 3] x, double[3] w, bool c) => (double[1, 3] y)
    <int64[1] axes = {0}>
    { r = Relu(x)
      h = If(c) <
        then_branch = yes () => (double[3] a) { a = Squeeze(r, axes) },
        else_branch = no () => (double[3] a) { a = Identity(r) }>
      p = Mul(h, w)
      y = Add(p, r) }
    """
    model = onnx.parser.parse_model(text)
    model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.DOUBLE, [3]))
    for c in (True, False):
        feeds = {"x": normal(1, 3), "w": normal(3), "c": np.array(c)}
        check_model(model, feeds, ["x", "w"])
