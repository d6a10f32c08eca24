"""The differentiation as a pass of onnx-ir."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx_ir.passes.common import RemoveUnusedNodesPass

import onnxgrad
from onnxgrad.autodiff.inline import body
from onnxgrad.autodiff.passes import DifferentiatePass
from onnxgrad.errors import GradientError

MODEL = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 3] x) => (float[N, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}>
    { unused = Relu(x)  p = MatMul(x, w)  y = Tanh(p) }"""


def test_it_is_chained_with_other_passes_and_gives_the_gradient():
    model = ir.from_proto(onnx.parser.parse_model(MODEL))
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    chain = ir.passes.Sequential(
        DifferentiatePass(wrt=["w"], ops="standard"), RemoveUnusedNodesPass()
    )
    result = chain(model)
    assert result.modified
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    assert "unused" not in {o.name for n in result.model.graph for o in n.outputs}
    x, dy = np.eye(3, dtype=np.float32), np.ones((3, 2), np.float32)
    names = [o.name for o in result.model.graph.outputs]
    ours = onnxgrad.session(ir.to_proto(result.model)).run(names, {"x": x, "y_grad": dy})
    plain = onnxgrad.session(onnxgrad.vjp(onnx.parser.parse_model(MODEL), wrt=["w"]))
    for a, b in zip(ours, plain.run(names, {"x": x, "y_grad": dy}), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_wrong_call_and_a_model_without_gradient_are_refused():
    with pytest.raises(ValueError, match="of and outputs are both given"):
        DifferentiatePass("y", outputs=["y"])
    text = MODEL.replace("MatMul", "d.Mystery").replace('"" : 17', '"" : 17, "d" : 1')
    with pytest.raises((GradientError, ir.passes.PassError)) as caught:
        DifferentiatePass(wrt=["w"])(ir.from_proto(onnx.parser.parse_model(text)))
    assert "Mystery" in str(caught.value) or "Mystery" in str(caught.value.__cause__)


def test_a_second_derivative_is_had_by_standard_operators():
    """x·Φ(x), twice: the error of the first way names the second."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 20]>
        g (float[3] x) => (float loss) { q = Gelu(x)  loss = ReduceSum <keepdims = 0> (q) }""")
    with pytest.raises(GradientError, match='build the first gradient with ops="standard"'):
        onnxgrad.vjp(onnxgrad.grad(model, wrt=["x"]), ["x_grad"], ["x"])
    once = onnxgrad.grad(model, wrt=["x"], ops="standard")
    # the names of the first gradient are taken: the second is of x_grad, by its own cotangent
    twice = onnxgrad.session(onnxgrad.vjp(once, ["x_grad"], ["x"], ops="standard"))
    x = np.array([-1, 0, 0.5], np.float32)
    found = twice.run(
        None, {"x": x, **{i.name: np.ones(3, np.float32) for i in twice.get_inputs()[1:]}}
    )
    density = np.exp(-(x.astype(np.float64) ** 2) / 2) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(found[-1], density * (2 - x.astype(np.float64) ** 2), rtol=1e-4)


@pytest.mark.parametrize("opset", [13, 18, 21, 22])
def test_the_body_of_an_operator_holds_where_newer_versions_only_take_more_types(opset):
    """MeanVarianceNormalization is written for opset 13: Mul, Sub and Pow took more types since, under the same
    names; ReduceMean has its axes elsewhere from 18 on."""
    node = ir.Node("", "MeanVarianceNormalization", [ir.Value("x")], num_outputs=1)
    found = body(node, opset)
    written = next(i.version for i in found.opset_import if not i.domain)
    assert written <= opset
    assert (written >= 18) == (opset >= 18)


def test_an_operator_that_is_no_function_has_no_body():
    assert body(ir.Node("", "MatMul", [ir.Value("a"), ir.Value("b")], num_outputs=1), 21) is None
    assert body(ir.Node("my.own", "Thing", [], num_outputs=1), 21) is None
