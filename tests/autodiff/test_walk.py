"""The walk: what is computed, what is not, and under which names."""

import importlib

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from autodiff.harness import make_session
from onnx import TensorProto, helper, numpy_helper

import onnxgrad.ort
from onnxgrad.autodiff import grad, vjp

TWO_LAYERS = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[N, 3] x) => (float[N, 2] y)
<float[3, 4] w1 = {1,2,3,4,5,6,7,8,9,1,2,3}, float[4] b1 = {1,2,3,4},
 float[4, 2] w2 = {1,2,3,4,5,6,7,8}>
{
    m = MatMul(x, w1)
    a = Add(m, b1)
    h = Tanh(a)
    y = MatMul(h, w2)
}
"""


def parse(text):
    return onnx.parser.parse_model(text)


def names(model):
    return [i.name for i in model.graph.input], [o.name for o in model.graph.output]


def counts(model):
    found = {}
    for node in model.graph.node:
        found[node.op_type] = found.get(node.op_type, 0) + 1
    return found


def run(model, **feeds):
    session = make_session(model)
    outputs = session.run(None, {k: np.asarray(v, np.float32) for k, v in feeds.items()})
    return dict(zip([o.name for o in session.get_outputs()], outputs, strict=True))


def test_names_and_order():
    g = vjp(parse(TWO_LAYERS))
    assert names(g) == (["x", "y_grad"], ["y", "w1_grad", "b1_grad", "w2_grad"])
    onnx.checker.check_model(g, full_check=True)


def test_the_order_is_the_model_s_whatever_the_sizes():
    names_ = [f"w{i}" for i in range(4)]
    sizes = (3, 3000, 5, 2000)
    weights = [
        numpy_helper.from_array(np.ones(n, np.float32), w)
        for w, n in zip(names_, sizes, strict=True)
    ]
    nodes = [helper.make_node("ReduceSum", [w], [f"s{w}"], keepdims=0) for w in names_]
    nodes.append(helper.make_node("Sum", [f"s{w}" for w in names_], ["loss"]))
    info = helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])
    graph = helper.make_graph(nodes, "g", [], [info], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert names(grad(model))[1] == ["loss", *(f"{w}_grad" for w in names_)]


def test_gradients_have_the_shape_and_type_of_their_tensor():
    g = vjp(parse(TWO_LAYERS), wrt=["x", "w1"])
    shapes = {o.name: o.type for o in g.graph.output}
    own = parse(TWO_LAYERS).graph.input[0].type
    assert shapes["x_grad"] == own
    assert [d.dim_value for d in shapes["w1_grad"].tensor_type.shape.dim] == [3, 4]


def test_nothing_is_computed_for_frozen_parameters():
    g = vjp(parse(TWO_LAYERS), wrt=["w2"], ops="standard")
    assert counts(g) == {"MatMul": 2, "Add": 1, "Tanh": 1, "Gemm": 1}  # dw2 = hᵀ·dy, no more
    g = vjp(parse(TWO_LAYERS), wrt=["b1"], ops="fused")
    # dh = dy·w2ᵀ, da, db1 = Σ da: no gradient of a weight or of x
    assert counts(g) == {
        "MatMul": 2, "Add": 1, "Tanh": 1, "FusedMatMul": 1, "TanhGrad": 1, "ReduceSum": 1,
    }  # fmt: skip


def test_an_unused_branch_costs_nothing():
    text = TWO_LAYERS.replace("(float[N, 2] y)", "(float[N, 2] y, float[N, 4] z)").replace(
        "y = MatMul(h, w2)", "y = MatMul(h, w2)\n z = Exp(h)"
    )
    g = vjp(parse(text), outputs=["y"], wrt=["w1"], ops="standard")
    assert counts(g)["Exp"] == 1  # the forward one
    assert "z_grad" not in names(g)[0]


def test_forward_values_are_reused():
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[N] x) => (float[N] y, float[N] s) { y = Softplus(x)  s = Sigmoid(x) }
    """
    g = vjp(parse(text), outputs=["y"], wrt=["x"], ops="standard")
    assert counts(g) == {"Softplus": 1, "Sigmoid": 1, "Mul": 1}  # dx = dy · s, s is there already


def test_identical_nodes_are_shared():
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[N] a, float[N] b) => (float[N] y) { p = Mul(a, b)  y = Exp(p) }
    """
    g = vjp(parse(text), wrt=["a", "b"], ops="standard")
    assert counts(g) == {"Mul": 4, "Exp": 1}  # p; dp once; da = dp·b; db = dp·a


def test_random_nodes_are_not_shared():
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[N] x) => (float[N] y, float[N] z)
    { r = RandomUniformLike(x)  s = RandomUniformLike(x)  y = Mul(x, r)  z = Mul(x, s) }
    """
    g = vjp(parse(text), wrt=["x"], ops="standard")
    assert counts(g)["RandomUniformLike"] == 2


def test_contributions_add_up():
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[2] x) => (float[2] y)
    { a = Mul(x, x)  b = Mul(a, x)  c = Add(a, b)  y = Add(c, x) }
    """
    g = vjp(parse(text), wrt=["x"], ops="standard")
    out = run(g, x=[2.0, -1.0], y_grad=[1.0, 10.0])
    np.testing.assert_allclose(out["x_grad"], [2 * 2 + 3 * 4 + 1, 10 * (-2 + 3 + 1)])


def test_a_tensor_without_influence_gets_zeros_when_it_is_named():
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[2] x, float[N, 3] u) => (float[2] y)
    <float[2] w = {1, 2}, float[4] idle = {1, 2, 3, 4}>
    { y = Mul(x, w) }
    """
    assert names(vjp(parse(text)))[1] == ["y", "w_grad"]
    g = vjp(parse(text), wrt=["idle", "u", "w"])
    assert names(g)[1] == ["y", "idle_grad", "u_grad", "w_grad"]
    out = run(g, x=[1, 2], u=np.ones((5, 3)), y_grad=[1, 1])
    assert out["idle_grad"].tolist() == [0] * 4
    assert out["u_grad"].shape == (5, 3)


def test_a_gradient_that_is_the_cotangent_itself():
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[2] a, float[2] b) => (float[2] y) { y = Add(a, b) }
    """
    g = vjp(parse(text), wrt=["a", "b"])
    onnx.checker.check_model(g, full_check=True)
    out = run(g, a=[1, 2], b=[3, 4], y_grad=[5, 6])
    assert out["a_grad"].tolist() == out["b_grad"].tolist() == [5, 6]


def test_names_that_clash_are_made_unique():
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[2] y_grad) => (float[2] y) { x_grad = Exp(y_grad)  x = Exp(x_grad)  y = Exp(x) }
    """
    g = vjp(parse(text), wrt=["y_grad"])
    assert names(g) == (["y_grad", "y_grad_1"], ["y", "y_grad_grad"])
    onnx.checker.check_model(g, full_check=True)


def test_parameters_become_inputs():
    g = vjp(parse(TWO_LAYERS), wrt=["w1", "w2"], parameters="inputs")
    assert names(g)[0] == ["x", "y_grad", "w1", "w2"]
    assert [t.name for t in g.graph.initializer if not t.name.startswith("grad/")] == ["b1"]
    onnx.checker.check_model(g, full_check=True)


@pytest.mark.parametrize("parameters", ["initializers", "inputs"])
def test_weights_in_constant_nodes(parameters):
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[2] x) => (float[2] y)
    { w = Constant <value = float[2] {2, 3}> ()  t = Identity(w)  y = Mul(x, t) }
    """
    g = vjp(parse(text), parameters=parameters)
    assert names(g)[1] == ["y", "w_grad"]
    feeds = {"w": [2, 3]} if parameters == "inputs" else {}
    assert run(g, x=[1, 2], y_grad=[1, 1], **feeds)["w_grad"].tolist() == [1, 2]


def test_running_statistics_and_scalars_are_not_trainable_by_default():
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[N, 2] x) => (float[N, 2] y)
    <float[2] scale = {1, 2}, float[2] b = {1, 2}, float[2] mean = {1, 2}, float[2] var = {1, 2},
     float two = {2}>
    { n = BatchNormalization(x, scale, b, mean, var)  y = Mul(n, two) }
    """
    assert names(vjp(parse(text)))[1] == ["y", "scale_grad", "b_grad"]


def test_the_value_of_a_trained_exponent_is_not_baked_in():
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[2] x) => (float[2] y) <float[1] n = {2}> { y = Pow(x, n) }
    """
    g = vjp(parse(text), wrt=["x", "n"], parameters="inputs", ops="standard")
    out = run(g, x=[2, 3], n=[3], y_grad=[1, 1])
    np.testing.assert_allclose(out["x_grad"], [12, 27], rtol=1e-5)


def test_grad_of_a_scalar():
    text = TWO_LAYERS.replace("(float[N, 2] y)", "(float loss)").replace(
        "y = MatMul(h, w2)", "y = MatMul(h, w2)\n loss = ReduceMean <keepdims = 0> (y)"
    )
    g = grad(parse(text), of="loss", wrt=["w2"])
    assert names(g) == (["x"], ["loss", "w2_grad"])
    assert run(g, x=np.ones((4, 3)))["w2_grad"].shape == (4, 2)


def test_the_input_model_is_never_changed():
    model = parse(TWO_LAYERS)
    before = model.SerializeToString()
    vjp(model, parameters="inputs")
    assert model.SerializeToString() == before
    graph = ir.from_proto(model)
    text = ir.to_proto(graph).SerializeToString()
    vjp(graph, parameters="inputs")
    assert ir.to_proto(graph).SerializeToString() == text


def test_every_kind_of_model(tmp_path):
    model = parse(TWO_LAYERS)
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    expected = vjp(model).SerializeToString()
    for given in (path, str(path), path.read_bytes()):
        assert vjp(given).SerializeToString() == expected
    assert isinstance(vjp(ir.from_proto(model)), ir.Model)


def save_externally(model, path):
    """onnx moves raw bytes only; what the parser writes is none."""
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (path.parent / "weights.bin").stat().st_size > 0


def test_external_data(tmp_path):
    """The result stands by itself: it can be run and saved where the weights' file is not."""
    save_externally(parse(TWO_LAYERS), tmp_path / "net.onnx")
    made = vjp(tmp_path / "net.onnx")
    assert not any(t.external_data or t.data_location for t in made.graph.initializer)
    (tmp_path / "weights.bin").unlink()
    feeds = {"x": np.ones((2, 3)), "y_grad": np.ones((2, 2))}
    expected = run(vjp(parse(TWO_LAYERS)), **feeds)
    np.testing.assert_array_equal(run(made, **feeds)["w1_grad"], expected["w1_grad"])


def test_weights_that_fit_no_message_stay_in_their_file(tmp_path, monkeypatch):
    """As above 2 GB, with a smaller limit."""
    monkeypatch.setattr(importlib.import_module("onnxgrad.graph.load"), "INLINE_LIMIT", 8)
    save_externally(parse(TWO_LAYERS), tmp_path / "net.onnx")
    g = vjp(tmp_path / "net.onnx")
    kept = [t for t in g.graph.initializer if t.name == "w1"]
    assert [e.value for e in kept[0].external_data if e.key == "location"] == ["weights.bin"]
    onnx.save(g, tmp_path / "gradient.onnx")
    session = onnxgrad.ort.session(tmp_path / "gradient.onnx")
    feeds = {"x": np.ones((2, 3), np.float32), "y_grad": np.ones((2, 2), np.float32)}
    expected = run(vjp(parse(TWO_LAYERS)), **feeds)
    np.testing.assert_array_equal(session.run(["w1_grad"], feeds)[0], expected["w1_grad"])


def test_model_local_functions_are_inlined():
    text = """
    <ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
    net (float[2] x) => (float[2] y) { y = mine.Twice(x) }
    <domain: "mine", opset_import: ["" : 17]> Twice (a) => (b) { b = Add(a, a) }
    """
    out = run(vjp(parse(text), wrt=["x"]), x=[1, 2], y_grad=[1, 2])
    assert out["x_grad"].tolist() == [2, 4]


@pytest.mark.parametrize(
    ("ratio", "mode", "scale"), [("", "", 1), ("r", "", 1), ("r", "t", 4), ("", "t", 2)]
)
def test_dropout(ratio, mode, scale):
    text = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[200] x) => (float[200] y) <float r = {{0.75}}, bool t = {{1}}>
    {{ y = Dropout(x, {ratio or '""'}, {mode or '""'}) }}
    """
    g = vjp(parse(text), wrt=["x"])
    out = run(g, x=np.full(200, 2.0), y_grad=np.ones(200))
    np.testing.assert_allclose(out["y"], 2 * out["x_grad"])
    assert set(out["x_grad"]) <= {0, scale}
    assert len(g.graph.node[0].output) == (2 if mode else 1)  # no mask where nothing is dropped


def test_statistics_of_half_precision_are_computed_in_float():
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float16[N, 8] x, float16[8] s) => (float16[N, 8] y) { y = LayerNormalization(x, s) }
    """
    g = vjp(parse(text), wrt=["x", "s"], ops="standard")
    onnx.checker.check_model(g, full_check=True)
    casts = [n.attribute[0].i for n in g.graph.node if n.op_type == "Cast"]
    assert sorted(casts) == [1, 1, 1, 10, 10]


def test_gradients_are_cast_back():
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[2] x, double[2] d) => (double[2] y) { c = CastLike(x, d)  y = Mul(c, d) }
    """
    g = vjp(parse(text), wrt=["x", "d"], ops="standard")
    onnx.checker.check_model(g, full_check=True)
    kinds = [o.type.tensor_type.elem_type for o in g.graph.output]
    assert kinds == [TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.DOUBLE]


def test_a_deep_model_needs_no_recursion():
    nodes = [helper.make_node("Sin", [f"v{i}"], [f"v{i + 1}"]) for i in range(3000)]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "deep", [info("v0", TensorProto.FLOAT, [2])], [info("v3000", TensorProto.FLOAT, [2])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert len(vjp(model, wrt=["v0"]).graph.node) == 3000 * 3  # sin forward; cos and · backward


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_constants_have_the_type_of_the_model(dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    w = numpy_helper.from_array(np.ones(3, dtype), "w")
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["p"]),
        helper.make_node("Sigmoid", ["p"], ["s"]),
        helper.make_node("Gelu", ["s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, [2, 3])],
        [helper.make_tensor_value_info("y", kind, [2, 3])], [w],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    g = vjp(model, ops="fused")
    onnx.checker.check_model(g, full_check=dtype == np.float16)
    fused = any(n.domain == "com.microsoft" for n in g.graph.node)
    assert fused == (dtype != np.float16)  # the kernels are float and double


def test_an_input_without_a_gradient_is_not_trainable():
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[1, 1, 2, 2] x) => (float[1, 1, 4, 4] y)
    <float[4] scales = {1, 1, 2, 2}, float[1] w = {3}>
    { h = Mul(x, w)  y = Resize <mode = "nearest"> (h, , scales) }
    """
    assert names(vjp(parse(text)))[1] == ["y", "w_grad"]


def test_a_size_of_minus_one_is_unknown():
    """As Paddle writes it; taken for a number it would turn the sign of a mean's gradient."""
    model = parse("""
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[1, 2, 1, 5] x) => (float[1, 2, 1, 1] y) { h = Relu(x)  y = GlobalAveragePool(h) }
    """)
    for info in (model.graph.input[0], model.graph.output[0]):
        for i in (0, 3):
            info.type.tensor_type.shape.dim[i].dim_value = -1
    g = vjp(model, wrt=["x"], ops="standard")
    out = run(g, x=np.ones((1, 2, 1, 5)), y_grad=np.ones((1, 2, 1, 1)))
    np.testing.assert_allclose(out["x_grad"], 0.2)
