"""Frozen weights of a large model are read where they lie: by every session, in the pages of their file."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgrad import Trainer
from onnxgrad.model.lora import Lora
from onnxgrad.train.step import build

WIDTH = 64


@pytest.fixture
def small_is_large(monkeypatch):
    monkeypatch.setattr(build, "LARGE", 1 << 12)
    monkeypatch.setattr(build, "HELD", 1 << 10)
    monkeypatch.setattr(build, "BOUND", 1 << 10)


def stored(folder, kind: str) -> str:
    """Three layers with their weights in a data file."""
    rng = np.random.default_rng(0)
    nodes, tensors, x = [], [], "x"
    for i in range(3):
        y = f"y{i}"
        if kind == "float":
            weight = (rng.standard_normal((WIDTH, WIDTH)) / 8).astype(np.float32)
            tensors.append(numpy_helper.from_array(weight, f"layer{i}.weight"))
            nodes.append(helper.make_node("MatMul", [x, f"layer{i}.weight"], [y], f"layer{i}"))
        else:
            codes = rng.integers(0, 256, (WIDTH, 2, 16), np.uint8)
            scales = np.full(WIDTH * 2, 0.03, np.float32)
            tensors += [numpy_helper.from_array(codes, f"layer{i}.weight_Q4")]
            tensors += [numpy_helper.from_array(scales, f"layer{i}.weight_scales")]
            names = [x, f"layer{i}.weight_Q4", f"layer{i}.weight_scales"]
            nodes.append(
                helper.make_node("MatMulNBits", names, [y], f"layer{i}", domain="com.microsoft",
                                 K=WIDTH, N=WIDTH, bits=4, block_size=32)
            )  # fmt: skip
        nodes.append(helper.make_node("Tanh", [y], [f"a{i}"]))
        x = f"a{i}"
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "layers",
        [info("x", TensorProto.FLOAT, ["N", WIDTH])],
        [info(x, TensorProto.FLOAT, ["N", WIDTH])],
        tensors,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    path = folder / f"{kind}.onnx"
    onnx.save(model, path, save_as_external_data=True, location=f"{kind}.data", size_threshold=256)
    return str(path)


def trained(path: str) -> tuple[Trainer, list[float]]:
    trainer = Trainer(path, loss="mse", lr=1e-2, lora=Lora(r=4, targets="all-linear"))
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal((8, WIDTH)).astype(np.float32) for _ in range(2))
    losses = [trainer.step(x, y)["loss"] for _ in range(5)]
    return trainer, [*losses, trainer.evaluate(x, y)["loss"]]


def is_mapped(array: np.ndarray) -> bool:
    """Whether the memory of an array is a file's."""
    with open("/proc/self/maps") as file:
        for line in file:
            start, end = (int(x, 16) for x in line.split()[0].split("-"))
            if start <= array.ctypes.data < end:
                return line.split()[-1].endswith(".data")
    return False


@pytest.mark.parametrize("kind", ["float", "integers"])
def test_the_same_training_without_copies(kind, tmp_path, small_is_large, monkeypatch):
    path = stored(tmp_path, kind)
    trainer, losses = trained(path)
    bound = trainer._plan.graph.model.bound
    assert len(bound) == 3, "one tensor for each layer"
    assert all(is_mapped(array) for array in bound.values())
    proto = trainer._plan.graph.model.proto
    assert not {t.name for t in proto.graph.initializer} & set(bound)
    assert not [
        n.name
        for n in proto.graph.node
        if n.op_type in ("MatMulNBits", "Transpose") and set(n.input) & set(bound)
    ]
    monkeypatch.setattr(build, "LARGE", 1 << 40)
    other, expected = trained(path)
    assert not other._plan.graph.model.bound
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    trainer.save_adapter(tmp_path / "adapter")
    trainer.save(tmp_path / "tuned.onnx")


def test_a_frozen_matrix_is_not_kept_transposed(tmp_path):
    """The way back reads it as it lies: a Transpose of a constant would be folded into a second copy."""
    trainer, _ = trained(stored(tmp_path, "float"))
    nodes = trainer._plan.graph.model.proto.graph.node
    turned = [
        n for n in nodes if n.op_type == "Transpose" and re.fullmatch(r"layer\d.weight", n.input[0])
    ]
    assert not turned
    assert sum(n.op_type == "FusedMatMul" for n in nodes) == 2, (
        "the first layer's input needs no gradient"
    )


def test_names_that_the_optimiser_would_give_again_are_free():
    """onnxruntime writes a file with them, and fails over them when it sees that file again."""
    names = ("gemm_input_shape", "h_new_shape_token_3", "my_shape")
    model = ir.from_proto(
        onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[2, 2] x) => (float[4] y, int64[2] given)
        <int64[2] gemm_input_shape = {4, 1}, int64[2] h_new_shape_token_3 = {1, 4}, int64[1] my_shape = {4},
         int64[2] given_new_shape = {1, 4}>
        { a = Reshape(x, gemm_input_shape) b = Reshape(a, h_new_shape_token_3) y = Reshape(b, my_shape)
          given = Identity(given_new_shape) }""")
    )
    found = {t.name for t in build.to_session(model).proto.graph.initializer}
    assert found == {*(f"given/{n}" for n in (*names[:2], "given_new_shape")), "my_shape"}
