"""Which single numbers of files that other exporters wrote are weights."""

from __future__ import annotations

import onnx

from onnxgrad import inspect


def test_a_number_of_paddles_layers_is_a_weight():
    """A learnable scale of one number, which p2o writes as a Constant; numbers of its own have other names."""
    made = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 3] x) => (float[N, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 7}> {
            scale_0 = Constant<value = float[1] {1.1}>()  half = Constant<value = float[1] {0.5}>()
            m = MatMul(x, w)  s = Mul(m, scale_0)  y = Add(s, half)
        }""")
    made = onnx.ModelProto.FromString(
        made.SerializeToString().replace(b"scale_0", b"b_0.w_0")  # a dot is no part of a name there
    )
    kinds = {p.name: p.kind for p in inspect(made).parameters}
    assert kinds == {"w": "weight", "b_0.w_0": "weight", "half": "setting"}


def test_a_number_that_only_bounds_is_a_setting():
    """max(x, -0.4), as tf2onnx writes it, with a name of its own and four axes."""
    made = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17], producer_name: "tf2onnx">
        net (float[N, 3] x) => (float[N, 2] y)
        <float[3, 2] w = {1, 2, 3, 4, 5, 7}, float[1, 1] const_fold_opt__287 = {-0.4}, float[1] b = {0.3}>
        { m = MatMul(x, w)  c = Max(m, const_fold_opt__287)  y = Add(c, b) }""")
    kinds = {p.name: p.kind for p in inspect(made).parameters}
    assert kinds == {"w": "weight", "const_fold_opt__287": "setting", "b": "weight"}


def test_a_number_that_onnxscript_folded_is_a_setting_outside_of_pytorch():
    """The names that it notes are those of a script, not of parameters."""
    made = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17], producer_name: "OnnxScript">
        net (float[N, 3] x) => (float[N, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 7}, float ln10_cast = {2.3}>
        { m = MatMul(x, w)  y = Div(m, ln10_cast) }""")
    info = made.graph.value_info.add(name="ln10_cast")
    info.metadata_props.add(key="pkg.onnxscript.optimizer.folded_from", value="['ln10']")
    assert {p.name: p.kind for p in inspect(made).parameters}["ln10_cast"] == "setting"


def test_a_written_number_of_tf2onnx_is_a_setting():
    """The slope of a hard sigmoid; a bias of one number, folded into four axes, has other digits, or is still 0."""
    made = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17], producer_name: "tf2onnx">
        net (float[N, 3] x) => (float[N, 2] y)
        <float[3, 2] w = {1, 2, 3, 4, 5, 7}, float[1, 1] const_fold_opt__1 = {0.2}, float[1, 1] const__2 = {0.31415},
         float[1, 1] const_fold_opt__3 = {0}>
        { m = MatMul(x, w)  a = Mul(m, const_fold_opt__1)  b = Add(a, const__2)  y = Add(b, const_fold_opt__3) }""")
    kinds = {p.name: p.kind for p in inspect(made).parameters if p.name != "w"}
    expected = {"const_fold_opt__1": "setting", "const__2": "weight", "const_fold_opt__3": "weight"}
    assert kinds == expected
