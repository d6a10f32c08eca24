"""Operators that onnxruntime's optimizer and quantizer write: what their tensors are, and are called."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from model import merged_models as models

from onnxgrad import Trainer, inspect
from onnxgrad.model.trainable import TrainableModel

RNG = np.random.default_rng(0)


def test_copies_for_fused_operators_are_called_what_they_are():
    """The scale of a SkipLayerNormalization was called `bias`, and its biases `input3` and `input4`."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        net (float[N, 4] x) => (float[N, 4] y) {
            [skip] n = com.microsoft.SkipLayerNormalization(x, x, ones, zeros, zeros)
            [gelu] g = com.microsoft.BiasGelu(n, zeros)
            [last] y = LayerNormalization(g, ones, zeros) }""")
    names = {"ones": "norm.weight", "zeros": "norm.bias"}
    for node in model.graph.node:
        node.input[:] = [names.get(n, n) for n in node.input]
    tensors = [(models.ones(4), "norm.weight"), (models.zeros(4), "norm.bias")]
    model.graph.initializer.extend(onnx.numpy_helper.from_array(*t) for t in tensors)
    model.producer_name = "pytorch"
    assert set(TrainableModel(model).select("all")) == {
        "norm.weight", "norm.bias", "skip.layer_bias", "gelu.bias", "last.weight", "last.bias",
    }  # fmt: skip


def quantised_by_operators(kinds=("QGemm",)) -> onnx.ModelProto:
    """What quantize_static writes in its older form: integers from the first node to the last."""
    nodes = ["q = QuantizeLinear(x, s, z)"]
    nodes += ["g = com.microsoft.QGemm(q, s, z, w, c, o, , s, z)"]
    last = "g"
    if "QLinearSigmoid" in kinds:
        nodes += ["a = com.microsoft.QLinearSigmoid(g, s, z, s, z)"]
        last = "a"
    proto = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        net (float[N, 4] x) => (float[N, 3] y) {{ {" ".join(nodes)} y = DequantizeLinear({last}, s, z) }}""")
    tensors = {
        "s": np.float32(0.05), "z": np.uint8(120), "w": RNG.integers(-90, 90, (4, 3)).astype(np.int8),
        "c": np.array([0.02, 0.03, 0.04], np.float32), "o": np.zeros(3, np.int8),
    }  # fmt: skip
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in tensors.items()
    )
    return proto


@pytest.mark.parametrize("kinds", [("QGemm",), ("QGemm", "QLinearSigmoid")])
def test_scales_of_operators_on_integers_are_no_weights(kinds):
    """A scale for each column was called a weight, and its operator one that lacks a rule."""
    model = quantised_by_operators(kinds)
    seen = inspect(model)
    assert {p.kind for p in seen.parameters if p.size > 1} == {"quantisation"}
    assert not seen.trainable
    said = next(n.text for n in seen.notes if n.kind == "integer weights")
    assert said.startswith("1 weight is of an integer type (first: 'w')")
    with pytest.raises(
        ValueError, match=r"its weights are quantised integers \(DequantizeLinear, QGemm\)"
    ):
        Trainer(model, loss="mse")


def test_operators_on_integers_are_in_the_way_as_such():
    model = quantised_by_operators()
    model.graph.node[0].input[0] = "p"
    model.graph.node.insert(0, models.node("Mul", "x f", "p"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(models.normal(4), "f"))
    obstacles = [(o.operator, o.because) for o in inspect(model).obstacles]
    assert ("com.microsoft.QGemm", "computes on quantised integers") in obstacles
