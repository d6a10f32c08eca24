"""Masks, modes and scales in a data file, behind links as in the cache of a hub."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgrad import Trainer, inspect


def network(quantised: bool = False, mode: bool | None = None) -> onnx.ModelProto:
    """A matrix, a mask of booleans, and a Dropout of a mode, if any."""
    node, rng = helper.make_node, np.random.default_rng(0)
    tensors = {
        "mask": rng.random((4, 6)) > 0.3, "low": np.float32(-9),
        "w": rng.normal(size=(5, 6)).astype(np.float32),
    }  # fmt: skip
    nodes, weight = [], "w"
    if quantised:
        tensors["w"] = rng.integers(-100, 100, (5, 6)).astype(np.int8)
        tensors |= {
            "scale": rng.uniform(0.01, 0.02, 6).astype(np.float32),
            "zero": np.zeros(6, np.int8),
        }
        nodes, weight = [node("DequantizeLinear", ["w", "scale", "zero"], ["d"], axis=1)], "d"
    nodes += [node("MatMul", ["x", weight], ["a"]), node("Where", ["mask", "a", "low"], ["b"])]
    if mode is not None:
        tensors |= {"mode": np.array(mode), "ratio": np.float32(0.5)}
        nodes.append(node("Dropout", ["b", "ratio", "mode"], ["c"]))
    nodes.append(node("Identity", ["b" if mode is None else "c"], ["y"]))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, [4, 5])], [info("y", TensorProto.FLOAT, [4, 6])],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in tensors.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def linked(model: onnx.ModelProto, tmp_path) -> str:
    """The path of a link to the model, beside a link to the data file that all its tensors lie in."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    onnx.save(
        model, blobs / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0
    )
    for name, blob in (("m.onnx", "11"), ("m.data", "22")):
        (blobs / name).rename(blobs / blob)
        (snapshot / name).symlink_to(f"../blobs/{blob}")
    return str(snapshot / "m.onnx")


@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize("mode", [None, False, True])
def test_everything_in_a_data_file(quantised, mode, tmp_path):
    path = linked(network(quantised, mode), tmp_path)
    seen = inspect(path)
    assert ("training form" in {n.kind for n in seen.notes}) == (mode is True)
    trainer = Trainer(path, loss="mse", optimizer="sgd", lr=0.05)
    x = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    target = trainer.predict(x) + 1
    losses = [trainer.step(x, target)["loss"] for _ in range(40)]
    assert (
        mode is not None or losses[-1] < losses[0]
    )  # masks move the loss more than forty steps do
    trainer.save(tmp_path / "tuned.onnx")
    options = onnxruntime.SessionOptions()
    # of 8 bits before a product it makes an operator that rounds what it reads, too
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    written = str(tmp_path / "tuned.onnx")
    session = onnxruntime.InferenceSession(written, options, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": x})[0], trainer.predict(x), atol=1e-4)
