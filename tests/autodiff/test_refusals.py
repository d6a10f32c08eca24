"""What cannot be differentiated, and what is not a model: exact texts."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxgrad.autodiff import GradientError, fused, grad, no_gradient, rule, unsupported, vjp
from onnxgrad.autodiff.coverage import coverage
from onnxgrad.autodiff.rule import FUSED, REFUSED, STANDARD


def net(body, outputs="float[N] y", opset=17, imports=""):
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}{imports}]> '
        f"net (float[N] x) => ({outputs}) <float[1] w = {{1}}> {{ {body} }}"
    )


def test_every_node_in_the_way_is_named():
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
        net (float[N] x) => (float[N] y)
        {
            [first] a = mine.Odd(x)
            [second] b = Bernoulli(a)
            c = mine.Odd(b)
            [last] y = Exp(c)
        }""")
    with pytest.raises(GradientError) as error:
        vjp(model, wrt=["x"])
    assert str(error.value) == (
        "the gradient of 'y' cannot be built: 3 nodes stand in the way\n"
        "  node 'first' (mine.Odd): has no gradient rule yet\n"
        "    add one with onnxgrad.rule('Odd', domain='mine', ...), "
        "or leave the parameters before it out of wrt\n"
        "  node 'second' (Bernoulli): draws a random sample, "
        "whose derivative is not that of its distribution\n"
        "    take the sample out of the path to the parameters, or pass it in as an input\n"
        "  the node that makes 'c' (mine.Odd): has no gradient rule yet\n"
        "    add one with onnxgrad.rule('Odd', domain='mine', ...), "
        "or leave the parameters before it out of wrt"
    )


def test_a_node_beside_the_path_is_no_obstacle():
    model = net("i = Constant <value = int64[1] {0}> ()  s = Unsqueeze(x, i)"
                "  a = Multinomial <sample_size = 1> (s)"
                "  y = Exp(x)  z = Identity(a)", outputs="float[N] y, int32[1, 1] z")  # fmt: skip
    assert [o.name for o in vjp(model, wrt=["x"]).graph.output] == ["y", "z", "x_grad"]


def test_a_zero_gradient_is_not_an_error():
    g = vjp(net("y = Floor(x)"), wrt=["x"])
    assert [n.op_type for n in g.graph.node][1:] == ["Shape", "ConstantOfShape"]


def test_an_input_without_a_formula():
    rule("Half", domain="mine", inputs="X K", outputs="Y", X=lambda op, dY: dY)
    try:
        model = net("y = mine.Half(x, w)", imports=', "mine" : 1')
        assert len(vjp(model, wrt=["x"]).graph.node) == 2
        with pytest.raises(GradientError) as error:
            vjp(model, wrt=["w"])
        assert str(error.value) == (
            "the gradient of 'y' cannot be built: 1 node stands in the way\n"
            "  the node that makes 'y' (mine.Half): its rule gives no gradient of input 'K'\n"
            "    leave what 'w' depends on out of wrt, or write a rule with "
            "onnxgrad.rule('Half', K=...)"
        )
    finally:
        del STANDARD["mine", "Half"]


def test_users_can_refuse_and_allow():
    model = net("y = mine.Quiet(x)", imports=', "mine" : 1')
    no_gradient("Quiet", domain="mine", because="it is a test")
    assert [o.name for o in vjp(model, wrt=["x"]).graph.output] == ["y", "x_grad"]
    unsupported("Quiet", domain="mine", because="it is a test", instead="do nothing")
    with pytest.raises(GradientError, match=r"\(mine.Quiet\): it is a test\n    do nothing$"):
        vjp(model, wrt=["x"])
    del REFUSED["mine", "Quiet"]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: rule("Neg", Z=lambda op, dY: dY),
         "the rule for Neg gives a gradient of 'Z', expected one of its inputs X"),
        (lambda: rule("Neg", X=lambda op, Q, dY: dY),
         "the rule for Neg names 'Q', expected one of its inputs X, its outputs Y, "
         "or a cotangent dY"),
        (lambda: rule("Neg", X=lambda op, X: X), "the rule for Neg uses none of dY"),
        (lambda: rule("Elu", X=lambda op, dY, *, beta: dY),
         "the rule for Elu names the attribute 'beta', expected one of alpha, "
         "or attrs, need, node, forward, captured, inside, active"),
        (lambda: rule("Nonsense", X=lambda op, dY: dY),
         "ONNX has no operator 'Nonsense'; give its inputs='...' and outputs='...'"),
        (lambda: no_gradient("Nonsense", because=""), "ONNX has no operator 'Nonsense'"),
    ],
)  # fmt: skip
def test_a_misspelt_rule_fails_where_it_is_written(call, text):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        call()
    assert str(error.value) == text


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: vjp(3),
         "model is a int, expected a path, bytes, an onnx.ModelProto or an onnx_ir.Model"),
        (lambda: vjp(net("y = Exp(x)"), wrt="x"),
         "wrt is the string 'x', expected a list of names"),
        (lambda: vjp(net("y = Exp(x)"), wrt=["q"]), "wrt names 'q', which the model does not have"),
        (lambda: vjp(net("y = Exp(x)"), wrt=[1]), "wrt holds a int, expected names"),
        (lambda: vjp(net("y = Exp(x)"), outputs=["q"]),
         "the model has no output 'q'; its outputs are 'y'"),
        (lambda: vjp(net("y = Shape(x)", "int64[1] y"), outputs=["y"]),
         "output 'y' has type int64, expected a float tensor"),
        (lambda: vjp(net("s = Shape(x)  y = Exp(x)"), wrt=["s"]),
         "wrt names 's' of type int64, expected a float tensor"),
        (lambda: vjp(net("y = Exp(x)"), ops="fast"),
         'ops is \'fast\', expected "fused" or "standard"'),
        (lambda: vjp(net("y = Exp(x)"), parameters="none"),
         'parameters is \'none\', expected "initializers" or "inputs"'),
        (lambda: grad(net("y = Exp(x)", "float[3] y"), of="y"),
         "output 'y' has shape [N], expected a scalar; use vjp for a tensor, "
         "with a cotangent of its shape"),
        (lambda: vjp(net("y = Exp(q)"), wrt=["x"]),
         "node 'Exp' reads 'q', which no node, input or initializer of the graph provides"),
        (lambda: vjp(net("y = Concat(x, x)"), wrt=["x"]),
         "node 'y' (Concat) lacks the attribute 'axis', which it must have"),
        (lambda: vjp(net("y = Exp(x, x)"), wrt=["x"]),
         "node 'y' (Exp) has 2 inputs, expected 1"),
        (lambda: vjp(net('y = Mul("", x)'), wrt=["x"]),
         "node 'y' (Mul) leaves out input 'A', which it must have"),
        (lambda: vjp(net("z = Exp(x)"), wrt=["x"]),
         "graph output 'y' is made by no node of the graph"),
    ],
)  # fmt: skip
def test_wrong_calls(call, text):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        call()
    assert str(error.value) == text


def test_an_operator_of_our_own_is_for_float_and_double():
    fused("Mine", domain="mine", inputs="X", outputs="Y", X=lambda op, dY: op.ReluGrad(dY, dY))
    text = """
        <ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
        net (float16[N] x) => (float16[N] y) { y = mine.Mine(x) }"""
    try:
        with pytest.raises(GradientError, match="has a gradient for float and double only"):
            vjp(onnx.parser.parse_model(text), wrt=["x"])
        with pytest.raises(GradientError, match=r"by onnxgrad's own operators only\n    use ops="):
            vjp(onnx.parser.parse_model(text), wrt=["x"], ops="standard")
    finally:
        FUSED.pop(("mine", "Mine"))


def test_a_rule_that_fails_is_named():
    rule("Bad", domain="mine", inputs="X", outputs="Y", X=lambda op, dY: 1 / 0)
    try:
        with pytest.raises(GradientError) as error:
            vjp(net("y = mine.Bad(x)", imports=', "mine" : 1'), wrt=["x"])
    finally:
        del STANDARD["mine", "Bad"]
    assert str(error.value).splitlines()[1:] == [
        "  the node that makes 'y' (mine.Bad): its rule failed: "
        "ZeroDivisionError: division by zero",
        "    check the node with onnx.checker, or the rule when it is your own",
    ]


def test_a_cycle_is_refused():
    model = net("a = Exp(b)  b = Exp(a)  y = Exp(b)")
    with pytest.raises(
        ValueError, match=r"^the model's graph has a cycle, expected an acyclic graph$"
    ):
        vjp(model, wrt=["x"])


def test_nodes_out_of_order_are_sorted():
    assert len(vjp(net("y = Exp(a)  a = Exp(x)"), wrt=["x"]).graph.node) == 4


def test_bytes_that_are_no_model():
    with pytest.raises(ValueError, match=r"^the bytes hold no ONNX model: "):
        vjp(b"not a model")


def test_a_missing_file():
    with pytest.raises(FileNotFoundError):
        vjp("/nowhere/model.onnx")


def test_a_model_without_trainable_tensors_has_no_gradients():
    g = vjp(helper.make_model(helper.make_graph(
        [helper.make_node("Exp", ["x"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])))  # fmt: skip
    assert [o.name for o in g.graph.output] == ["y"]
    assert np.prod([len(g.graph.node), 1]) == 1


def test_the_coverage_page_is_up_to_date():
    page = Path(__file__).parents[2] / "docs" / "coverage.md"
    assert page.read_text() == coverage(), "run make docs"


def test_a_resize_that_keeps_its_aspect_by_the_corners_is_refused():
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 19]>
        net (float[1, 1, 4, 6] x) => (float y) <int64[2] sizes = {8, 8}> {
            y = Resize<mode="linear", axes=[2, 3], keep_aspect_ratio_policy="not_larger",
                       coordinate_transformation_mode="align_corners">(x, , , sizes)
        }""")
    with pytest.raises(
        GradientError,
        match=r"keeps the aspect ratio \(not_larger\) in a coordinate mode that depends",
    ):
        vjp(model, wrt=["x"], ops="standard")
