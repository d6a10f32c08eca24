"""What is asked of large tensors reads them where they lie: no copies, which models of gigabytes have no room for."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgrad.model.trainable import TrainableModel

WIDTH = 1536
BYTES = 4 * WIDTH**2


def layers(tmp_path) -> str:
    """Square matrices that MatMul, Gemm, Gather and Add read, in a data file."""
    rng = np.random.default_rng(0)
    names = ["words", "w", "g", "p"]
    node = helper.make_node
    nodes = [
        node("Gather", ["words", "i"], ["e"]),
        node("MatMul", ["e", "w"], ["a"]),
        node("Gemm", ["a", "g", "b"], ["c"]),
        node("Slice", ["p", "start", "end"], ["few"]),
        node("Add", ["c", "few"], ["y"]),
    ]
    tensors = {n: rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) for n in names}
    tensors |= {"b": np.zeros(WIDTH, np.float32), "start": np.array([0]), "end": np.array([1])}
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("i", TensorProto.INT64, ["N"])], [info("y", TensorProto.FLOAT, ["N", WIDTH])],
        [numpy_helper.from_array(a, n) for n, a in tensors.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "layers.onnx"
    onnx.save(model, path, save_as_external_data=True, location="layers.data")
    return str(path)


@pytest.mark.parametrize("wanted", ["all", "head"])
def test_judging_what_is_a_weight_copies_nothing(wanted, tmp_path):
    model = TrainableModel(layers(tmp_path))
    tracemalloc.start()
    try:
        assert model.select(wanted)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < BYTES / 2
