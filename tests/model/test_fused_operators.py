"""Operators that onnxruntime's optimizer and quantizer write: what their tensors are, and are called."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from model import merged_models as models

from onnxgrad import Trainer, inspect
from onnxgrad.errors import GradientError
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


def test_the_trainer_says_which_integers_stay():
    """Only `inspect` did; the scales and zero points beside them are no weights."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        net (float[N, 32] x) => (float[N, 3] y) {
            h = com.microsoft.MatMulNBits<K = 32, N = 3, bits = 4, block_size = 16>(x, packed, scales, zeros)
            y = Add(h, b) }""")
    tensors = {
        "packed": RNG.integers(0, 256, (3, 2, 8)).astype(np.uint8), "b": models.normal(3),
        "scales": np.abs(models.normal(6)), "zeros": np.array([0x35, 0x71, 0x8F], np.uint8),
    }  # fmt: skip
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in tensors.items())
    said = "1 weight is of an integer type (first: 'packed') and cannot be trained; "
    said += "start from the float model and quantize afterwards"
    trainer = Trainer(model, loss="mse")
    assert list(trainer.get_weights()) == ["b"]
    assert [str(n) for n in trainer.notes] == [said]
    assert said in inspect(model).warnings


def test_a_classical_model_behind_a_weight_is_named_for_what_it_is():
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
        net (float[N, 2] x) => (float[N, 1] y) <float[2] w = {2, 3}> {
            h = Mul(x, w)
            y = ai.onnx.ml.LinearRegressor<coefficients = [0.5, 0.25], intercepts = [0.5]>(h) }""")
    (obstacle,) = inspect(model).obstacles
    assert obstacle.because == "has its numbers in attributes, and has no gradient in onnxgrad"
    with pytest.raises(GradientError, match="convert it to MatMul and Add, or fit it anew"):
        Trainer(model, loss="mse")
