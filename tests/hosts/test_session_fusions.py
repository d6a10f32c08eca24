"""A registered library must not break a session: ONNX Runtime's own fusions, with our operators registered."""

import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import onnxgrad

CPU = ["CPUExecutionProvider"]
DISABLED = "optimization.disable_specified_optimizers"


def normal(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("f4")


def whole(*shape):
    return np.random.default_rng(1).integers(0, 255, shape).astype("u1")


def model(text, opset=17, **tensors):
    """Parse a graph; keywords are its initializers."""
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(v), k) for k, v in tensors.items()
    )
    return made


QUANT = {"s": np.float32(0.1), "z": np.uint8(128)}
HALF, ONE, ROOT = np.float32(0.5), np.float32(1), np.float32(2**0.5)
# fmt: off
MODELS = {
    "Conv, Relu": model(
        "g (float[2,3,8,8] x) => (float[2,4,6,6] y) { c = Conv(x, w) y = Relu(c) }", w=normal(4, 3, 3, 3)),
    "Conv, Add, Relu": model(
        "g (float[2,3,8,8] x) => (float[2,4,6,6] y) { c = Conv(x, w) d = Conv(x, v) e = Add(c, d) y = Relu(e) }",
        w=normal(4, 3, 3, 3), v=normal(4, 3, 3, 3)),
    "Gemm, Relu": model(
        "g (float[2,3] x) => (float[2,4] y) { c = Gemm(x, w, b) y = Relu(c) }", w=normal(3, 4), b=normal(4)),
    "Gemm, LeakyRelu": model(
        "g (float[2,3] x) => (float[2,4] y) { c = Gemm(x, w, b) y = LeakyRelu(c) }", w=normal(3, 4), b=normal(4)),
    "MatMul, Relu": model("g (float[2,3] x) => (float[2,4] y) { c = MatMul(x, w) y = Relu(c) }", w=normal(3, 4)),
    "DynamicQuantizeLinear, MatMulInteger": model(
        """g (float[2,3] x) => (float[2,4] y) { q, t, u = DynamicQuantizeLinear(x) i = MatMulInteger(q, w, u, z)
           c = Cast<to=1>(i) m = Mul(t, s) y = Mul(c, m) }""", w=whole(3, 4), **QUANT),
    "Gelu by Erf": model(
        """g (float[2,3] x) => (float[2,3] y)
           { a = Div(x, r) e = Erf(a) p = Add(e, o) m = Mul(x, p) y = Mul(m, h) }""", r=ROOT, o=ONE, h=HALF),
    "a bias, Gelu by Erf": model(
        """g (float[2,3] v) => (float[2,3] y)
           { x = Add(v, b) a = Div(x, r) e = Erf(a) p = Add(e, o) m = Mul(x, p) y = Mul(m, h) }""",
        r=ROOT, o=ONE, h=HALF, b=normal(3)),
    "QuickGelu": model("g (float[2,3] x) => (float[2,3] y) { s = Sigmoid(x) y = Mul(x, s) }"),
    "MatMul of a Transpose": model(
        "g (float[2,3,4] x) => (float[2,3,3] y) { t = Transpose<perm=[0,2,1]>(x) y = MatMul(x, t) }"),
    "MatMul, scaled": model(
        "g (float[2,3,3] x) => (float[2,3,3] y) { t = MatMul(x, x) y = Mul(t, k) }", k=np.float32(0.3)),
    "Add, LayerNormalization": model(
        """g (float[2,5,4] x) => (float[2,5,4] y)
           { n = Neg(x) m = Mul(n, n) t = Add(x, m) y = LayerNormalization<axis=-1>(t, s, b) }""",
        s=normal(4), b=normal(4)),
    "QDQ: Add": model(
        """g (float[2,4] x) => (float[2,4] y) { a = QuantizeLinear(x, s, z) b = DequantizeLinear(a, s, z)
           c = Add(b, b) d = QuantizeLinear(c, s, z) y = DequantizeLinear(d, s, z) }""", **QUANT),
    "QDQ: Gemm": model(
        """g (float[2,4] x) => (float[2,3] y) { a = QuantizeLinear(x, s, z) b = DequantizeLinear(a, s, z)
           v = DequantizeLinear(w, s, z) c = Gemm(b, v) d = QuantizeLinear(c, s, z) y = DequantizeLinear(d, s, z) }""",
        w=whole(4, 3), **QUANT),
    "QDQ: MatMul": model(
        """g (float[2,4] x) => (float[2,3] y) { a = QuantizeLinear(x, s, z) b = DequantizeLinear(a, s, z)
           v = DequantizeLinear(w, s, z) y = MatMul(b, v) }""", w=whole(4, 3), **QUANT),
    "QLinearConv": model(
        """g (float[1,3,8,8] x) => (float[1,4,6,6] y)
           { a = QuantizeLinear(x, s, z) c = QLinearConv(a, s, z, w, s, z, s, z) y = DequantizeLinear(c, s, z) }""",
        w=whole(4, 3, 3, 3), **QUANT),
}
# fmt: on


def run(session):
    shape = session.get_inputs()[0].shape
    return session.run(None, {session.get_inputs()[0].name: normal(*shape)})[0]


def plain(made, options=None):
    return onnxruntime.InferenceSession(made.SerializeToString(), options, providers=CPU)


@pytest.mark.parametrize("name", MODELS)
def test_a_plain_session_with_our_operators_runs_any_model(name):
    options = onnxgrad.register(onnxruntime.SessionOptions())
    np.testing.assert_allclose(
        run(plain(MODELS[name], options)), run(plain(MODELS[name])), rtol=1e-5, atol=1e-6
    )


def test_the_library_answers_by_itself_in_any_language():
    """As a C++ or C# program does it: no Python of ours between the options and the library."""
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(onnxgrad.library_path())
    run(plain(MODELS["Conv, Relu"], options))


def test_what_the_caller_turned_off_stays_off():
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(DISABLED, "ConstantFolding")
    onnxgrad.register(options)
    names = options.get_session_config_entry(DISABLED).split(";")
    assert names[0] == "ConstantFolding"
    assert "ConvActivationFusion" in names
    onnxgrad.register(options, fusions=True)
    assert options.get_session_config_entry(DISABLED) == "ConstantFolding"


def imported(made):
    copy = onnx.ModelProto()
    copy.CopyFrom(made)
    copy.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return copy


def optimized(made, path, make_session):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    make_session(made, options)
    return [n.op_type for n in onnx.load(path).graph.node]


def test_session_keeps_the_fusions_where_the_model_imports_the_domain(tmp_path):
    made = MODELS["Gemm, Relu"]
    assert optimized(imported(made), tmp_path / "a.onnx", onnxgrad.session) == ["FusedGemm"]
    assert optimized(made, tmp_path / "b.onnx", onnxgrad.session) == ["FusedGemm"]
    kept = optimized(
        imported(made), tmp_path / "c.onnx",
        lambda m, o: plain(m, onnxgrad.register(o, fusions=True)),
    )  # fmt: skip
    assert kept == ["FusedGemm"]


def test_one_set_of_options_serves_models_of_both_kinds():
    options = onnxruntime.SessionOptions()
    made = MODELS["Conv, Relu"]
    for each in (imported(made), made, imported(made), made):
        run(onnxgrad.session(each, options))


@pytest.mark.parametrize(("ops", "domains"), [("fused", {"", "com.microsoft"}), ("standard", {""})])
def test_gradient_models_of_our_operators_import_their_domain(ops, domains):
    made = model(
        "g (float[2,3] x) => (float[2,4] y) { y = MatMul(x, w) }", w=normal(3, 4)
    )  # a gradient without an operator of ours
    gradient = onnxgrad.vjp(made, ops=ops)
    assert {o.domain for o in gradient.opset_import} == domains


def test_no_warning_for_a_model_that_imports_the_domain(tmp_path):
    """Every session of a Trainer is one: a warning each would hide what matters."""
    code = (
        "import onnx, onnxgrad; from onnx import helper as h;"
        "i=[h.make_tensor_value_info('x', 1, [2])]; o=[h.make_tensor_value_info('y', 1, [2])];"
        "g=h.make_graph([h.make_node('Relu',['x'],['y'])],'g',i,o);"
        "m=h.make_model(g,opset_imports=[h.make_opsetid('',17),h.make_opsetid('com.microsoft',1)],ir_version=8);"
        "onnxgrad.session(m)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
