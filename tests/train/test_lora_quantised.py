"""Adapters on frozen models as people have them: the eight variants of an ONNX repository, and QDQ.

Each is judged by the same adapter on a float64 model with the weights that the variant's integers mean.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from model.lora_problems import MODELS
from onnx import numpy_helper

from onnxgrad import Trainer
from onnxgrad.checking.double import to_double
from onnxgrad.graph import load
from onnxgrad.model.lora import Lora, layers, matrices

PLACES = [f"encoder.layer.{i}.attention.{n}" for i in range(2) for n in ("query", "value")]


def encoder() -> onnx.ModelProto:
    """The encoder with Tanh in place of Erf, which onnxruntime has in float only."""
    model = MODELS["encoder"]().model()
    for node in model.graph.node:
        node.op_type = "Tanh" if node.op_type == "Erf" else node.op_type
    return model


def quantised(kind: str, folder) -> onnx.ModelProto:
    """The encoder in one of the variants, made by onnxruntime's own tools."""
    from onnxruntime import quantization as q

    model = encoder()
    if kind == "fp32":
        return model
    if kind in ("int8", "uint8", "quantized", "int8 by channel"):
        onnx.save(model, folder / "m.onnx")
        weights = q.QuantType.QUInt8 if kind == "uint8" else q.QuantType.QInt8
        channels = "channel" in kind
        q.quantize_dynamic(
            folder / "m.onnx", folder / "q.onnx", weight_type=weights, per_channel=channels,
            op_types_to_quantize=["MatMul"],
        )  # fmt: skip
        return onnx.load(folder / "q.onnx")
    if kind == "QDQ weights":
        return with_stored_integers(model)
    if kind in ("fp16", "q4f16"):
        model = halved(model)
    if kind in ("q4", "q4f16", "q4 asymmetric"):
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        made = MatMulNBitsQuantizer(model, block_size=32, is_symmetric="asymmetric" not in kind)
        made.process()
        model = made.model.model
    elif kind == "bnb4":
        from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer

        made = MatMulBnb4Quantizer(model, MatMulBnb4Quantizer.NF4, 64)
        made.process()
        model = made.model.model
    return model


def with_stored_integers(model: onnx.ModelProto) -> onnx.ModelProto:
    """Matrices in 8 bits behind a DequantizeLinear for each column, as quantize_static stores weights."""
    matrices_of = {n.input[1] for n in model.graph.node if n.op_type == "MatMul"}
    for tensor in [t for t in model.graph.initializer if t.name in matrices_of]:
        array = numpy_helper.to_array(tensor)
        scale = (np.abs(array).max(0) / 127).astype(np.float32)
        codes = np.rint(array / scale).astype(np.int8)
        name = tensor.name
        model.graph.initializer.remove(tensor)
        parts = {"quantized": codes, "scale": scale, "zero_point": np.zeros(len(scale), np.int8)}
        for end, part in parts.items():
            model.graph.initializer.append(numpy_helper.from_array(part, f"{name}_{end}"))
        inputs = [f"{name}_{end}" for end in parts]
        node = onnx.helper.make_node(
            "DequantizeLinear", inputs, [name], f"{name}/dequantize", axis=1
        )
        model.graph.node.insert(0, node)
    return model


def halved(model: onnx.ModelProto) -> onnx.ModelProto:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    return convert_float_to_float16(model, keep_io_types=True)


def as_float64(model: onnx.ModelProto) -> ir.Model:
    """The original graph with the weights that `model` means, in double."""
    plain = encoder()
    found = {layer.name: layer for layer in layers.find(load(model))}
    floats = {t.name: t for t in model.graph.initializer if t.data_type in (1, 10)}
    wide = to_double(load(plain))
    for layer in layers.find(load(plain)):
        own = found.get(layer.name)
        if own is not None and layer.kind == "linear":
            new = matrices.matrix(own)
            value = wide.graph.initializers[layer.weight.value.name]
            value.const_value = ir.tensor(new.T.copy() if layer.weight.transposed else new)
    for name, value in wide.graph.initializers.items():
        if name in floats and floats[name].data_type == 10:
            value.const_value = ir.tensor(numpy_helper.to_array(floats[name]).astype(np.float64))
    return wide


# What the forward pass rounds decides how near the gradients can be.
KINDS = {
    "fp32": 1e-5, "QDQ weights": 1e-5, "q4": 1e-5, "q4 asymmetric": 1e-5, "bnb4": 1e-5,
    "fp16": 1e-5, "q4f16": 1e-5,  # computed in float32 from weights in half precision
    "quantized": 0.1, "int8": 0.1, "uint8": 0.1, "int8 by channel": 0.1,  # activations in 8 bits
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_float64_on_the_weights_that_are_meant(kind, tmp_path):
    problem = MODELS["encoder"]()
    model = quantised(kind, tmp_path)
    settings = {"loss": "cross_entropy", "optimizer": "sgd", "lr": 0.0}
    lora = Lora(**problem.lora, targets=PLACES)
    trainer = Trainer(model, lora=lora, **settings)
    exact = Trainer(as_float64(model), lora=lora, **settings)
    rng = np.random.default_rng(0)
    start = {n: 0.2 * rng.standard_normal(a.shape) for n, a in exact.get_weights().items()}
    x, y = problem.batches[0]
    for each in (trainer, exact):
        each.set_weights(start)
        each.step(x, y)
    assert set(trainer.get_weights()) == set(start)
    for name in start:
        expected, got = exact.store.gradient(name), trainer.store.gradient(name)
        size = np.abs(expected).max()
        np.testing.assert_allclose(got, expected, rtol=0, atol=KINDS[kind] * size, err_msg=name)


NODES = {"q4": "MatMulNBits", "q4f16": "MatMulNBits", "bnb4": "MatMulBnb4", "int8": "MatMulInteger"}


@pytest.mark.parametrize("kind", ["q4", "bnb4", "int8", "fp16", "q4f16", "QDQ weights"])
def test_what_was_trained_runs_in_plain_onnxruntime(kind, tmp_path):
    """The folder, and the one file: beside integers the branch stays."""
    from train.test_lora import run

    problem = MODELS["encoder"]()
    trainer = Trainer(
        quantised(kind, tmp_path), loss="cross_entropy", lr=1e-2, lora=Lora(r=4, targets=PLACES)
    )
    x, y = problem.batches[0]
    losses = [trainer.step(x, y)["loss"] for _ in range(10)]
    expected = trainer.predict(x)
    trainer.save_adapter(tmp_path / "a")
    # Files in half precision round.
    tolerance = 2e-2 if "16" in kind else 1e-3 if kind == "int8" else 1e-4
    rounding = kind != "QDQ weights"  # onnxruntime would round what products read
    files = tmp_path / "a" / "model.onnx", tmp_path / "a" / "adapter.onnx_adapter"
    got = run(files[0], x, files[1], rounding=rounding)
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)
    trainer.save(tmp_path / "tuned.onnx")
    got = run(tmp_path / "tuned.onnx", x, rounding=rounding)
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)
    kept = {n.op_type for n in onnx.load(tmp_path / "tuned.onnx").graph.node}
    assert NODES.get(kind, "MatMul") in kept
    assert losses[-1] < 0.9 * losses[0]
