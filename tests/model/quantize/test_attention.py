"""A transformer in integers: where softmax, normalisation and coarse weights can part a file from its training."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

from onnxgrad import Trainer
from onnxgrad.demo.models import Sketch, attention_block
from onnxgrad.model.quantize import Quantize

TOKENS, WIDTH = 12, 16
RNG = np.random.default_rng(0)
X = RNG.integers(0, 20, (256, TOKENS))
Y = (X[:, 0] > X[:, 1]).astype(np.int64)


def transformer() -> onnx.ModelProto:
    s = Sketch(1)
    h = s.add("Gather", s.weight("table", 20, WIDTH, fan_in=2 * WIDTH), "x")
    h = attention_block(s, h, TOKENS, WIDTH, heads=2)
    s.dense(s.add("ReduceMean", h, axes=[1], keepdims=0), "head", WIDTH, 2, out="logits")
    model = s.model("transformer", (TOKENS,), 2, TensorProto.INT64)
    for tensor in (
        model.graph.initializer
    ):  # biases of normalisations as training leaves them: small, and not 0
        if tensor.name.endswith(".bias"):
            array = RNG.normal(0, 0.02, tuple(tensor.dims)).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    return model


@pytest.fixture(scope="module", params=["int8", "w4a8"])
def written(request, tmp_path_factory):
    """A trained integer model, and its trainer."""
    path = tmp_path_factory.mktemp("integers") / "m.onnx"
    quantize = Quantize.parse(request.param, data=X)
    trainer = Trainer(
        transformer(), loss="cross_entropy", lr=1e-3, quantize=quantize, seed=0, threads=1
    )
    trainer.fit(X, Y, epochs=2, batch_size=32)
    trainer.save(path)
    return path, trainer


def test_the_file_computes_what_was_trained(written):
    """Within one step of the output, on every row: in integer kernels, and in floats behind the integers."""
    path, trainer = written
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    step = float(tensors["logits_scale"])
    expected = trainer.predict(X)
    for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        (got,) = onnxruntime.InferenceSession(path, options).run(None, {"x": X})
        off = np.abs(got - expected)
        assert off.max() < 1.5 * step, level
        assert (off > step / 2).mean() < 0.15, level


def test_the_scale_of_a_softmax_is_one_that_onnxruntime_computes_with(written):
    """Its kernel cuts 1/scale to an integer, and learns nothing: the range is 0 to 1 whatever is trained."""
    path, _ = written
    model = onnx.load(path)
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    softmax = next(n for n in model.graph.node if n.op_type == "Softmax")
    quantise = next(n for n in model.graph.node if softmax.output[0] in n.input)
    steps = np.float32(1) / tensors[quantise.input[1]]
    assert int(steps) in (255, 256)
