"""A model of more than 2 GB, of which the head is trained: no message may hold its weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgrad import Trainer

pytestmark = pytest.mark.live
WIDTH = 23_200  # its square in floats is 2.15 GB


def test_the_head_of_a_model_above_2_gb(tmp_path):
    rng = np.random.default_rng(0)
    normal = lambda *s: (0.1 * rng.standard_normal(s)).astype(np.float32)  # noqa: E731
    with open(tmp_path / "big.bin", "wb") as file:
        file.truncate(4 * WIDTH**2)  # zeros, which take no room on most systems
    big = TensorProto(name="big", data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH])
    big.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "big.bin", "length": 4 * WIDTH**2}.items():
        big.external_data.add(key=key, value=str(value))
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("MatMul", ["x", "down"], ["a"]),
        helper.make_node("Gather", ["big", "i"], ["e"]),
        helper.make_node("Add", ["a", "e"], ["b"]),
        helper.make_node("MatMul", ["b", "head"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(normal(*s), n)
        for n, s in (("down", (4, WIDTH)), ("head", (WIDTH, 2)))
    ]
    graph = helper.make_graph(
        nodes, "g", [info("x", 1, ["N", 4]), info("i", 7, ["N"])], [info("y", 1, ["N", 2])], [big, *weights]
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    trainer = Trainer(tmp_path / "m.onnx", loss="mse", optimizer="sgd", lr=1e-4, trainable="head")
    assert list(trainer.get_weights()) == ["head"]
    batch = {"x": normal(4, 4), "i": np.arange(4), trainer.target_names[0]: normal(4, 2)}
    losses = [trainer.step(batch)["loss"] for _ in range(3)]
    assert losses[-1] < losses[0]
    trainer.save(tmp_path / "t.onnx")
    head = {
        t.name: t
        for t in onnx.load(tmp_path / "t.onnx", load_external_data=False).graph.initializer
    }["head"]
    np.testing.assert_array_equal(numpy_helper.to_array(head), trainer.get_weights()["head"])
