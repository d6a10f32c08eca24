"""Precisions: weights in blocks, weights alone, other types by node; and the calibrators of onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from train import problems

import onnxgrad
from onnxgrad.errors import ConfigError
from onnxgrad.model.quantize import Quantize
from onnxgrad.model.quantize.settings import Precision

WIDE = 48  # of the perceptron's layers: one block and a half


def perceptron() -> onnx.ModelProto:
    """Two products by MatMul, one by Gemm with a transposed weight, and a convolution before them."""
    rng = np.random.default_rng(4)
    weights = {
        "k": rng.standard_normal((4, 1, 3), np.float32) * 0.5,
        "w1": rng.standard_normal((32, WIDE), np.float32) * 0.2,
        "b1": rng.standard_normal(WIDE, np.float32) * 0.1,
        "w2": rng.standard_normal((WIDE, WIDE), np.float32) * 0.2,
        "w3": rng.standard_normal((5, WIDE), np.float32) * 0.2,
        "b3": np.zeros(5, np.float32),
        "flat": np.array([0, 32], np.int64),
    }
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "k"], ["c"], name="stem", kernel_shape=[3], pads=[1, 1]),
        node("Relu", ["c"], ["r"], name="relu"),
        node("Reshape", ["r", "flat"], ["f"], name="flatten"),
        node("MatMul", ["f", "w1"], ["p1"], name="fc1"),
        node("Add", ["p1", "b1"], ["h1"], name="bias1"),
        node("Tanh", ["h1"], ["a1"], name="tanh1"),
        node("MatMul", ["a1", "w2"], ["h2"], name="fc2"),
        node("Tanh", ["h2"], ["a2"], name="tanh2"),
        node("Gemm", ["a2", "w3", "b3"], ["logits"], name="head", transB=1),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, ["N", 1, 8])],
        [info("logits", TensorProto.FLOAT, ["N", 5])],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    y = rng.integers(0, 5, 160)
    centres = rng.standard_normal((5, 1, 8))
    return (centres[y] + 0.3 * rng.standard_normal((160, 1, 8))).astype(np.float32), y


def trained(rows, tmp_path, settings: Quantize, epochs: int = 6) -> dict[str, onnx.TensorProto]:
    """Train and write; return the file's tensors, once its outputs are those of the trained graph."""
    x, y = rows
    trainer = onnxgrad.Trainer(
        perceptron(), "cross_entropy", lr=3e-3, quantize=settings, metrics="accuracy"
    )
    history = trainer.fit(x, y, epochs=epochs, batch_size=16)
    assert history["loss"][-1] < 0.7 * history["loss"][0]
    trainer.save(tmp_path / "integers.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(tmp_path / "integers.onnx"), options)
    got = session.run(None, {"x": x[:32]})[0]
    expected = trainer.predict(x[:32])
    np.testing.assert_allclose(got, expected, atol=0.02 * np.abs(expected).max())
    assert (got.argmax(1) == expected.argmax(1)).mean() > 0.95
    model = onnx.load(tmp_path / "integers.onnx")
    onnx.checker.check_model(model, full_check=True)
    return {t.name: t for t in model.graph.initializer}


def node_reading(path, tensor: str) -> onnx.NodeProto:
    return next(n for n in onnx.load(path).graph.node if tensor in n.input)


@pytest.mark.parametrize("word", ["w4b32a8", "w4b32", "w8b16"])
def test_weights_in_blocks(word, rows, tmp_path):
    kind = {"4": TensorProto.INT4, "8": TensorProto.INT8}[word[1]]
    block = int(word[3:5])
    tensors = trained(rows, tmp_path, Quantize(word, data=rows[0]))
    for name, shape, axis in (
        ("w1", [-(-32 // block), WIDE], 0),
        ("w2", [-(-WIDE // block), WIDE], 0),
        ("w3", [5, -(-WIDE // block)], 1),
    ):
        assert tensors[f"{name}_quantized"].data_type == kind
        assert list(tensors[f"{name}_scale"].dims) == shape
        node = node_reading(tmp_path / "integers.onnx", f"{name}_quantized")
        settings = {a.name: a.i for a in node.attribute}
        assert (settings["axis"], settings["block_size"]) == (axis, block)
    assert list(tensors["k_scale"].dims) == [4]  # a convolution: by channel
    assert ("x_scale" in tensors) == word.endswith("a8")


def test_blocks_of_4_bits_run_in_the_kernel_of_small_weights(rows, tmp_path):
    trained(rows, tmp_path, Quantize("w4b16", data=rows[0], op_types=["MatMul"]))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(str(tmp_path / "integers.onnx"), options)
    kinds = [n.op_type for n in onnx.load(tmp_path / "optimised.onnx").graph.node]
    assert kinds.count("MatMulNBits") == 2


def test_weights_alone_need_no_rows(rows):
    onnxgrad.Trainer(perceptron(), "cross_entropy", quantize=Quantize("w4b32"))
    with pytest.raises(ConfigError, match="needs rows to calibrate on"):
        onnxgrad.Trainer(perceptron(), "cross_entropy", quantize=Quantize("w4b32a8"))


@pytest.mark.parametrize("scales", ["learned", "observed", "fixed"])
def test_precisions_by_node(scales, rows, tmp_path):
    nodes = {"head": "float", "fc1": "w4a8", "fc*": "w4b16a8", "stem": "w8"}
    tensors = trained(rows, tmp_path, Quantize("int8", nodes=nodes, scales=scales, data=rows[0]))
    kinds = {n: t.data_type for n, t in tensors.items()}
    assert kinds["w3"] == TensorProto.FLOAT
    assert kinds["w1_quantized"] == TensorProto.INT4
    assert list(tensors["w1_scale"].dims) == [WIDE]
    assert list(tensors["w2_scale"].dims) == [3, WIDE]
    assert kinds["k_quantized"] == TensorProto.INT8
    assert "x_scale" not in tensors  # the stem's weights alone


def test_wider_activations_of_one_node(rows, tmp_path):
    tensors = trained(rows, tmp_path, Quantize("int8", nodes="fc2=w8a16", data=rows[0]))
    assert tensors["a1_zero_point"].data_type == TensorProto.INT16
    assert tensors["x_zero_point"].data_type == TensorProto.INT8


def test_lists_of_nodes_as_onnxruntime_has_them(rows, tmp_path):
    """nodes_to_quantize and op_types_to_quantize; nodes_to_exclude is tested with the rest."""
    both = Quantize.parse("int8,nodes_to_quantize=fc*+bias1,op_types_to_quantize=MatMul").on(
        rows[0]
    )
    assert (both.only, both.op_types) == (("fc*", "bias1"), ("MatMul",))
    tensors = trained(rows, tmp_path, both)
    quantised = {n.removesuffix("_quantized") for n in tensors if n.endswith("_quantized")}
    assert quantised == {"w2"}  # of fc1 and its bias onnxruntime made a Gemm


def test_words():
    assert Precision.parse("w4b32a8", "uint8") == Precision("int4", "uint8", 32)
    assert Precision.parse("w4") == Precision("int4", "float", 0)
    assert Precision.parse("uint4", "int16", 64) == Precision("uint4", "int16", 64)
    settings = Quantize.parse("w4b32a8", nodes="head*=float, a=b=int8")
    assert (settings.weights, settings.activations, settings.block) == ("int4", "int8", 32)
    assert settings.nodes == (
        ("head*", Precision(None, "float")), ("a=b", Precision("int8", "int8", 32)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            dict(nodes="nothing=float"),
            "nodes names 'nothing', which is not a node; nodes are 'stem'",
        ),
        (dict(only=["nothing*"]), "only names 'nothing"),
        (
            dict(nodes="fc1=int8", block=16),
            "int8 in blocks and int8 activations, for which onnxruntime has no",
        ),
        (dict(nodes="head"), "nodes has 'head', expected NODE=PRECISION"),
        (dict(nodes={"head": "int3"}), "'int3' is not a precision"),
    ],
)
def test_what_is_refused(settings, said, rows):
    with pytest.raises(ValueError, match=said):
        onnxgrad.Trainer(
            perceptron(), "cross_entropy", quantize=Quantize("int8", data=rows[0], **settings)
        )


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy"])
@pytest.mark.parametrize("activations", ["int8", "uint8"])
def test_ranges_are_those_of_onnxruntimes_calibrators(method, activations, tmp_path):
    """The same data through onnxruntime's calibrator itself, and its formula for scale and zero point."""
    from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator
    from onnxruntime.quantization.shape_inference import quant_pre_process

    problem = problems.cnn()
    x = np.concatenate([b[0] for b in problem.batches[:4]])
    onnx.save(problem.model(), tmp_path / "plain.onnx")
    quant_pre_process(
        str(tmp_path / "plain.onnx"), str(tmp_path / "ready.onnx"), skip_symbolic_shape=True
    )
    kinds = dict(
        minmax=CalibrationMethod.MinMax,
        percentile=CalibrationMethod.Percentile,
        entropy=CalibrationMethod.Entropy,
    )
    more = {"percentile": 99.0} if method == "percentile" else {}
    calibrator = create_calibrator(
        tmp_path / "ready.onnx", None, str(tmp_path / "augmented.onnx"), kinds[method], extra_options=more
    )  # fmt: skip
    batches = iter([{"x": x[i : i + 32]} for i in range(0, len(x), 32)])

    class Reader:
        def get_next(self):
            return next(batches, None)

    calibrator.collect_data(Reader())
    ranges = calibrator.compute_data().data
    how = Quantize("int8", activations=activations, method=method, percentile=99.0, data=x)
    trainer = onnxgrad.Trainer(problem.model(), "cross_entropy", quantize=how)
    trainer.save(tmp_path / "integers.onnx")
    tensors = {
        t.name: numpy_helper.to_array(t)
        for t in onnx.load(tmp_path / "integers.onnx").graph.initializer
    }
    low, high = (-128, 127) if activations == "int8" else (0, 255)
    found = [n for n in ranges if f"{n}_scale" in tensors]
    assert len(found) >= 4
    for name in found:
        lowest, highest = (float(np.asarray(v).reshape(-1)[0]) for v in ranges[name].range_value)
        lowest, highest = min(lowest, 0.0), max(highest, 0.0)
        scale = (highest - lowest) / (high - low)
        np.testing.assert_allclose(tensors[f"{name}_scale"], scale, rtol=1e-5)
        assert abs(int(tensors[f"{name}_zero_point"]) - (low - lowest / scale)) <= 0.51
