"""The weight of a layer as a matrix is what onnxruntime makes of the unit vectors, in whatever form it is kept."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgrad.errors import AdapterError
from onnxgrad.model.lora.layers import find
from onnxgrad.model.lora.matrices import as_kept, column_norms, matrix

K, N = 32, 6
RNG = np.random.default_rng(0)
W = RNG.normal(size=(K, N)).astype(np.float32)
CODES = RNG.integers(-99, 99, (K, N)).astype(np.int8)
SCALES, ZEROS = (
    RNG.uniform(0.01, 0.02, N).astype(np.float32),
    RNG.integers(-9, 9, N).astype(np.int8),
)
PACKED = RNG.integers(0, 256, (N, 2, 8), np.uint8)  # 4 bits in two blocks of 16
node = helper.make_node


def contrib(op_type, tensors, **attributes):
    made = node(op_type, ["x", *tensors], ["y"], domain="com.microsoft", **attributes)
    return [made], tensors


def stored(axis=None, block=None, **tensors):
    settings = {k: v for k, v in (("axis", axis), ("block_size", block)) if v is not None}
    return [
        node("DequantizeLinear", list(tensors), ["w"], **settings),
        node("MatMul", ["x", "w"], ["y"]),
    ], tensors


def by_integers(scale, zero, turned=False):
    """The product of integers as onnxruntime's quantize_dynamic writes it."""
    tensors = {"q": CODES.astype(np.int8), "sw": scale, **({} if zero is None else {"zw": zero})}
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["xq", "sx", "zx"]),
        node("MatMulInteger", ["xq", "q", "zx", *(["zw"] if zero is not None else [])], ["p"]),
        node("Cast", ["p"], ["c"], to=TensorProto.FLOAT),
        node("Mul", ["sw", "sx"] if turned else ["sx", "sw"], ["s"]),
        node("Mul", ["c", "s"], ["y"]),
    ]
    return nodes, tensors


BLOCKS = {"K": K, "N": N, "bits": 4, "block_size": 16}
OF_BLOCKS = {"B": PACKED, "s": RNG.uniform(0.1, 0.2, 2 * N).astype(np.float32)}
BNB = {
    "B": RNG.integers(0, 256, K * N // 2, np.uint8),
    "m": RNG.uniform(1, 2, K * N // 16).astype(np.float32),
}
FORMS = {
    "floats": ([node("MatMul", ["x", "w"], ["y"])], {"w": W}),
    "turned by a node": ([node("Transpose", ["t"], ["w"]), node("MatMul", ["x", "w"], ["y"])], {"t": W.T.copy()}),
    "turned by Gemm": ([node("Gemm", ["x", "t"], ["y"], transB=1)], {"t": W.T.copy()}),
    "scaled by Gemm": ([node("Gemm", ["x", "w"], ["y"], alpha=0.5)], {"w": W}),
    "half": ([node("Cast", ["h"], ["w"], to=TensorProto.FLOAT), node("MatMul", ["x", "w"], ["y"])],
             {"h": W.astype(np.float16)}),
    "stored, one scale": stored(q=CODES, s=np.float32(0.02)),
    "stored, a zero point": stored(q=CODES, s=np.float32(0.02), z=np.int8(7)),
    "stored, by column": stored(axis=1, q=CODES, s=SCALES, z=ZEROS),
    "stored, by column, from the end": stored(axis=-1, q=CODES, s=SCALES, z=ZEROS),
    "stored, by column unsaid": stored(q=CODES, s=SCALES),
    "stored, by row": stored(axis=0, q=CODES, s=RNG.uniform(0.1, 0.2, K).astype(np.float32)),
    "stored, blocks": stored(axis=0, block=16, q=CODES, s=RNG.uniform(0.1, 0.2, (2, N)).astype(np.float32)),
    "4 bits": contrib("MatMulNBits", OF_BLOCKS, **BLOCKS),
    "4 bits, zero points": contrib(
        "MatMulNBits", {**OF_BLOCKS, "z": RNG.integers(0, 256, N, np.uint8)}, **BLOCKS),
    "8 bits": contrib("MatMulNBits", {**OF_BLOCKS, "B": RNG.integers(0, 256, (N, 2, 16), np.uint8)},
                      **{**BLOCKS, "bits": 8}),
    "NF4": contrib("MatMulBnb4", BNB, K=K, N=N, block_size=16, quant_type=1),
    "FP4": contrib("MatMulBnb4", BNB, K=K, N=N, block_size=16, quant_type=0),
    "dynamic": contrib("DynamicQuantizeMatMul", {"q": CODES, "s": SCALES}),
    "dynamic, zero points": contrib("DynamicQuantizeMatMul", {"q": CODES, "s": SCALES, "z": ZEROS}),
    "integers": by_integers(np.float32(0.02), None),
    "integers, a zero point": by_integers(np.float32(0.02), np.int8(5), turned=True),
    "integers, by column": by_integers(SCALES, ZEROS),
}  # fmt: skip


def model(nodes, tensors, x=("M", K), y=("M", N)) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, list(x))], [info("y", TensorProto.FLOAT, list(y))],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in tensors.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def run(made: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(made.SerializeToString(), options)
    return session.run(None, {"x": x})[0]


def layer_of(made: onnx.ModelProto):
    (layer,) = find(ir.from_proto(made))
    return layer


@pytest.mark.parametrize("form", FORMS)
def test_the_matrix_that_is_meant(form):
    made = model(*FORMS[form])
    layer = layer_of(made)
    expected = run(made, np.eye(K, dtype=np.float32))
    found = matrix(layer)
    assert (layer.fan_in, layer.fan_out) == found.shape == (K, N)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    np.testing.assert_allclose(column_norms(layer), (found**2).sum(0))


@pytest.mark.parametrize(
    "form", ["floats", "turned by a node", "turned by Gemm", "scaled by Gemm", "half"]
)
def test_a_new_matrix_in_the_form_of_the_old(form):
    nodes, tensors = FORMS[form]
    ((name, old),) = tensors.items()
    new = as_kept(layer_of(model(nodes, tensors)), W + 1.0)
    assert (new.shape, new.dtype) == (old.shape, old.dtype)
    np.testing.assert_allclose(
        run(model(nodes, {name: new}), np.eye(K, dtype=np.float32)), W + 1, rtol=2e-3
    )


def test_integers_take_no_branch():
    with pytest.raises(
        AdapterError, match="is kept in 8-bit, into which a branch cannot be merged"
    ):
        as_kept(layer_of(model(*FORMS["dynamic"])), W)


def test_a_convolution():
    """[out, in, k, k] as a matrix [in·k·k, out]: onnxruntime sees each of its columns at one place."""
    w = RNG.normal(size=(N, 2, 4, 4)).astype(np.float32)
    made = model([node("Conv", ["x", "w"], ["y"])], {"w": w}, ("M", 2, 4, 4), ("M", N, 1, 1))
    layer = layer_of(made)
    assert layer.kind == "conv"
    expected = run(made, np.eye(32, dtype=np.float32).reshape(32, 2, 4, 4)).reshape(32, N)
    np.testing.assert_allclose(matrix(layer), expected, rtol=1e-6)
    np.testing.assert_array_equal(as_kept(layer, matrix(layer)), w)
