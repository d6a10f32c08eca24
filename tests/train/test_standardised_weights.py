"""Weights that a batch normalisation standardises in every run, as NFNets have them."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from onnxgrad import Trainer
from onnxgrad.train.optimizers import SGD

RNG = np.random.default_rng(3)


def _model() -> onnx.ModelProto:
    """Conv(x, standardised w)·v: the exporter wrote the kernel again for the statistics that nobody reads."""
    w = RNG.normal(size=(1, 4, 9)).astype(np.float32)
    tensors = {
        "onnx::BatchNormalization_1": w,
        "onnx::BatchNormalization_2": np.full(4, 0.3, np.float32),
        "zeros": np.zeros(4, np.float32),
        "onnx::ReduceMean_3": w,
        "over": np.array([0, 2]),
        "shape": np.array([4, 1, 3, 3]),
        "head.weight": RNG.normal(size=(4, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("ReduceMean", ["onnx::ReduceMean_3"], ["mean"], axes=[0, 2], keepdims=0),
        helper.make_node("Add", ["mean", "mean"], ["var"]),
        helper.make_node(
            "BatchNormalization",
            ["onnx::BatchNormalization_1", "onnx::BatchNormalization_2", "zeros", "mean", "var"],
            ["flat", "m", "v"],
            name="/norm",
            training_mode=1,
            momentum=1.0,
            epsilon=1e-6,
        ),
        helper.make_node("Reshape", ["flat", "shape"], ["kernel"]),
        helper.make_node("Conv", ["x", "kernel"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "head.weight"], ["y"]),
    ]
    infos = [("x", ["n", 1, 6, 6]), ("y", ["n", 3])]
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in infos)
    arrays = [numpy_helper.from_array(a, n) for n, a in tensors.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], arrays)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8, producer_name="pytorch")


def _run(model, x: np.ndarray) -> np.ndarray:
    return onnxruntime.InferenceSession(model).run(None, {"x": x})[0]


def test_they_train_through_their_own_mean_and_deviation(tmp_path):
    model, x = _model(), RNG.normal(size=(8, 1, 6, 6)).astype(np.float32)
    labels = RNG.integers(0, 3, 8)
    trainer = Trainer(model, loss="cross_entropy", optimizer=SGD(lr=1e-2))
    np.testing.assert_allclose(trainer.predict(x), _run(model.SerializeToString(), x), atol=1e-6)
    first = trainer.step(x, labels)
    second = trainer.step(x, labels)
    fall = 1e-2 * first["grad_norm"] ** 2  # of a straight line
    np.testing.assert_allclose(first["loss"] - second["loss"], fall, rtol=0.02)
    assert "onnx::BatchNormalization_1" in trainer.get_weights()
    assert not any(n.kind in ("frozen", "training form") for n in trainer.notes)
    assert any(n.kind == "computed weights" for n in trainer.notes)
    trainer.save(tmp_path / "tuned.onnx")
    written = _run(str(tmp_path / "tuned.onnx"), x)
    np.testing.assert_allclose(written, trainer.predict(x), atol=1e-6)
    (norm,) = (n for n in onnx.load(tmp_path / "tuned.onnx").graph.node if n.name == "/norm")
    assert {a.name: a.i for a in norm.attribute}["training_mode"] == 1
