"""A file of integers that somebody else wrote: which of them train, what stays as it is, what is written back."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgrad import Trainer
from onnxgrad.model.quantize.fake import FakeQuantise
from onnxgrad.model.quantize.integers import factors
from onnxgrad.model.quantize.weights import OwnWeight, quantise_weights
from onnxgrad.model.trainable import TrainableModel

RNG = np.random.default_rng(0)
X, Y = RNG.uniform(-1, 1, (8, 4)).astype(np.float32), RNG.normal(size=(8, 3)).astype(np.float32)
SX, SW = np.float32(1 / 127), RNG.uniform(0.01, 0.02, 3).astype(np.float32)
TENSORS = {
    "wq": RNG.integers(-100, 100, (4, 3)).astype(np.int8), "sw": SW, "zw": np.zeros(3, np.int8),
    "sx": SX, "zx": np.int8(0), "bq": RNG.integers(-999, 999, 3).astype(np.int32), "sb": SX * SW,
    "other_q": RNG.integers(-100, 100, (4, 3)).astype(np.int8), "other_s": np.float32(0.01),
}  # fmt: skip


def model(computed_scale: bool = False) -> onnx.ModelProto:
    """x, weight and bias as integers before a Gemm; `other` is read by a second output only."""
    node = helper.make_node
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zx"], ["xq"], "quantise_x"),
        node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"], "x_again"),
        node("DequantizeLinear", ["wq", "sw", "zw"], ["w"], "weight", axis=1),
        node("DequantizeLinear", ["bq", "sb"], ["b"], "bias", axis=0),
        node("Gemm", ["xd", "w", "b"], ["y"]),
        node("DequantizeLinear", ["other_q", "given" if computed_scale else "other_s"], ["o"], "other"),
        node("MatMul", ["x", "o"], ["z"]),
    ]  # fmt: skip
    info = helper.make_tensor_value_info
    inputs = [info("x", TensorProto.FLOAT, ["N", 4])]
    if computed_scale:
        nodes.insert(0, node("ReduceMax", ["x"], ["given"], keepdims=0))
    graph = helper.make_graph(
        nodes, "g", inputs, [info(n, TensorProto.FLOAT, ["N", 3]) for n in "yz"],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in TENSORS.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def kinds(scales: str = "", **form) -> dict[str, str]:
    made = TrainableModel(model(**form), changes=[FakeQuantise(scales=scales)])
    return {t.name: t.kind for t in made.tensors()}


LEFT = {"sb": "unreached", "other_q.float": "unreached"}
TRAINED = {"wq.float": "weight", "bq.float": "weight"}
ZEROS = dict.fromkeys(["sx/zero", "sw/zero", "other_s/zero"], "quantisation")
OF_THE_FILE = dict.fromkeys(["sx", "sw", "other_s"], "quantisation")
UNREAD = {"sw": "unreached", "sx": "setting", "other_s": "setting"}
EXPECTED = {
    "": {**TRAINED, **LEFT, **ZEROS, **OF_THE_FILE},
    "fixed": {**TRAINED, **LEFT, **ZEROS, **OF_THE_FILE},
    "learned": {**TRAINED, **LEFT, **ZEROS, **UNREAD, "sx.log_scale": "weight", "sw.log_scale": "weight",
                "other_s.log_scale": "setting"},
    "observed": {**TRAINED, **LEFT, **UNREAD,
                 **{f"{s}.{end}": "quantisation" for s in ("sx", "sw", "other_s") for end in ("low", "high")}},
}  # fmt: skip


@pytest.mark.parametrize("scales", EXPECTED)
def test_what_every_tensor_is(scales):
    assert kinds(scales) == EXPECTED[scales]


def test_a_scale_that_is_computed_leaves_its_integers_as_they_are():
    made = TrainableModel(model(computed_scale=True))
    assert "other_q.float" not in {t.name for t in made.tensors()}
    first, second = made.changes[-1].describe()
    assert first.text.startswith("1 weights and 1 activations are quantised")
    assert (second.subject, second.text) == (
        "other",
        "1 integer tensors stay as they are, inside branches or with scales that are computed: 'other'",
    )
    twice = TrainableModel(model()).changes[-1].describe()
    assert [n.text[:26] for n in twice] == ["2 weights and 1 activation"]


def test_a_step_of_no_length_writes_the_same_file(tmp_path):
    trainer = Trainer(model(), loss="mse", optimizer="sgd", lr=0.0)
    trainer.step(X, Y)
    trainer.save(tmp_path / "same.onnx")
    again = {
        t.name: numpy_helper.to_array(t)
        for t in onnx.load(tmp_path / "same.onnx").graph.initializer
    }
    for name, array in TENSORS.items():
        np.testing.assert_array_equal(again[name], array, err_msg=name)


# ---- biases: whose scale is a product


def used(
    op_type: str, made_by: tuple[str, str], place: int = 2, times: int = 1, block: int = 0
) -> ir.Value:
    """A bias, read `times` times at `place` of an operator whose other inputs are made by two others."""
    source = ir.Value(name="source")
    inputs = []
    for maker in made_by:
        given = [ir.AttrInt64("block_size", block)] if block and not inputs else []
        inputs.append(
            ir.Node("", maker, [source], given, num_outputs=1).outputs[0]
            if maker
            else ir.Value(name="in")
        )
    bias = ir.Value(name="bias")
    inputs.insert(place, bias)
    for _ in range(times):
        ir.Node("", op_type, inputs, num_outputs=1)
    return bias


PAIR = ("DequantizeLinear", "FakeQuant")


@pytest.mark.parametrize("op_type", ["Conv", "Gemm", "ConvTranspose"])
def test_the_scale_of_a_bias_is_that_of_its_product(op_type):
    first, second = factors(used(op_type, PAIR))
    assert (first.op_type, second.op_type) == PAIR


@pytest.mark.parametrize(
    "bias",
    [
        used("LayerNormalization", PAIR), used("Conv", PAIR, place=1), used("Conv", PAIR, times=2),
        used("Conv", PAIR, block=16), used("Conv", ("", "FakeQuant")), used("Conv", ("DequantizeLinear", "")),
        used("Conv", ("Relu", "FakeQuant")), used("Conv", ("FakeQuant", "Relu")), ir.Value(name="unread"),
    ],
    ids=["another operator", "another place", "read twice", "blocks", "x given", "w given", "x", "w", "unread"],
)  # fmt: skip
def test_or_it_is_its_own(bias):
    assert factors(bias) is None


@pytest.mark.parametrize(("steps", "rounded"), [(100, True), (2**14, True), (2**14 + 1, False)])
def test_a_bias_of_few_steps_of_its_own_is_trained_as_it_is_rounded(steps, rounded):
    """That of a LayerNormalization, say: what training sees is what the file can hold."""
    info = helper.make_tensor_value_info
    bias = {
        "bq": np.array([steps, -3, 0, 7], np.int32),
        "sb": np.float32(0.25),
        "g": np.ones(4, np.float32),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["bq", "sb"], ["b"], "bias"),
        helper.make_node("LayerNormalization", ["x", "g", "b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, ["N", 4])], [info("y", TensorProto.FLOAT, ["N", 4])],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in bias.items()],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made = TrainableModel(proto, changes=[FakeQuantise()])
    norm = next(n for n in made.graph.graph if n.op_type == "LayerNormalization")
    maker = norm.inputs[2].producer()
    assert (maker is not None and maker.op_type == "FakeQuant") == rounded
    trainer = Trainer(
        proto, loss="mse", optimizer="sgd", lr=0.0, trainable=["bq.float"], changes=[FakeQuantise()]
    )
    trainer.set_weights({"bq.float": np.array([steps / 4 + 0.1, -0.6, 0.1, 1.9], np.float32)})
    kept = np.array([steps / 4, -0.5, 0, 2] if rounded else [steps / 4 + 0.1, -0.6, 0.1, 1.9])
    np.testing.assert_allclose(
        trainer.predict(np.ones((2, 4), np.float32)), [kept] * 2, rtol=1e-6, atol=1e-7
    )


# ---- weights that are made integers


def written(array: np.ndarray, own: OwnWeight) -> dict[str, np.ndarray]:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [info("x", TensorProto.FLOAT, None)],
        [info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(array, "w")],
    )  # fmt: skip
    made = helper.make_model(graph)
    quantise_weights(made, {"w": array}, {"w": own})
    assert [n.op_type for n in made.graph.node] == ["DequantizeLinear", "MatMul"]
    assert made.graph.node[1].input[1] == made.graph.node[0].output[0]
    found = {t.name.removeprefix("w_"): numpy_helper.to_array(t) for t in made.graph.initializer}
    return {**found, "settings": {a.name: a.i for a in made.graph.node[0].attribute}}


ARRAY = np.array([[1.0, -2.0, 0.5], [0.25, 4.0, -0.5], [0.0, -1.0, 0.125]], np.float32)


def test_one_scale_for_all():
    found = written(ARRAY, OwnWeight("int8", None))
    assert found["scale"] == np.float32(4 / 127)
    assert (found["zero_point"], found["settings"]) == (0, {})
    np.testing.assert_array_equal(found["quantized"], np.round(ARRAY / np.float32(4 / 127)))


def test_one_for_each_column_or_block():
    found = written(ARRAY, OwnWeight("uint8", 1))
    np.testing.assert_allclose(found["scale"], np.array([1, 4, 0.5]) / 127, rtol=1e-6)
    np.testing.assert_array_equal(found["zero_point"], [128, 128, 128])
    np.testing.assert_array_equal(
        found["quantized"], [[255, 64, 255], [160, 255, 1], [128, 96, 160]]
    )
    assert found["settings"] == {"axis": 1}
    found = written(ARRAY, OwnWeight("int8", 0, 2))
    np.testing.assert_allclose(
        found["scale"], np.array([[1, 4, 0.5], [127, 1, 0.125]]) / 127, rtol=1e-6
    )  # of zeros alone: 1
    assert found["settings"] == {"axis": 0, "block_size": 2}


def test_zeros_and_nothing_at_all():
    assert written(np.zeros((2, 3), np.float32), OwnWeight("int8", None))["scale"] == 1
    assert written(np.zeros((0, 3), np.float32), OwnWeight("int8", None))["quantized"].shape == (
        0,
        3,
    )
    np.testing.assert_array_equal(
        written(np.zeros((0, 3), np.float32), OwnWeight("int8", 1))["scale"], [1, 1, 1]
    )


def in_blocks(kind: int, scales: np.ndarray, zeros: np.ndarray | None) -> onnx.ModelProto:
    """A matrix of 4 bits in blocks of two rows, as onnxruntime's quantiser of MatMul writes it in QDQ form."""
    low, high = (-8, 7) if kind == TensorProto.INT4 else (0, 15)
    q = RNG.integers(low, high + 1, (8, 3))
    tensors = [
        helper.make_tensor("q", kind, (8, 3), q.ravel()),
        numpy_helper.from_array(scales, "s"),
    ]
    if zeros is not None:
        tensors.append(helper.make_tensor("z", kind, zeros.shape, zeros.ravel()))
    given = ["q", "s", *(["z"] if zeros is not None else [])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", given, ["w"], axis=0, block_size=2),
         helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g", [info("x", TensorProto.FLOAT, ["N", 8])], [info("y", TensorProto.FLOAT, ["N", 3])], tensors,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    ("kind", "zeros"),
    [
        (TensorProto.INT4, None),
        (TensorProto.INT4, RNG.integers(-3, 4, (4, 3))),
        (TensorProto.UINT4, RNG.integers(5, 11, (4, 3))),
    ],
)
def test_scales_below_zero_and_of_zero_train(kind, zeros, tmp_path):
    """onnxruntime's symmetric 4 bits have scales below zero, and 0 for blocks of zeros; FakeQuant refused both."""
    scales = RNG.uniform(0.05, 0.2, (4, 3)).astype(np.float32)
    scales[::2] *= -1
    scales[1, 1] = 0
    made = in_blocks(kind, scales, zeros)
    x = RNG.normal(size=(64, 8)).astype(np.float32)
    plain = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    trainer = Trainer(made, loss="mse", optimizer="adamw", lr=0.05)
    np.testing.assert_allclose(trainer.predict(x), plain.run(None, {"x": x})[0], atol=0.05)
    target = x @ RNG.normal(scale=0.3, size=(8, 3)).astype(np.float32)
    losses = [trainer.step(x, target)["loss"] for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]
    trainer.save(tmp_path / "tuned.onnx")
    written = {t.name: t for t in onnx.load(tmp_path / "tuned.onnx").graph.initializer}
    np.testing.assert_array_equal(numpy_helper.to_array(written["s"]), scales)
    whole = numpy_helper.to_array(written["q"]).astype(np.float64)
    offset = 0 if zeros is None else np.repeat(zeros, 2, axis=0)
    kept = (whole - offset) * np.repeat(scales, 2, axis=0)
    np.testing.assert_allclose(trainer.predict(x), x @ kept, atol=1e-4)


def test_the_mirrored_range_has_the_larger_end_on_the_other_side():
    """Of -8 … 7 with a scale below zero: -7 … 8 scales."""
    scales = np.array([[0.5, -0.5]], np.float32)
    made = in_blocks(
        TensorProto.INT4, np.repeat(np.repeat(scales, 4, axis=0), 2, axis=1)[:, :3], None
    )
    trainer = Trainer(made, loss="mse", optimizer="sgd", lr=0.1)
    for end, expected in ((100.0, [3.5, 3.5, 4.0]), (-100.0, [-4.0, -4.0, -3.5])):
        trainer.set_weights({n: np.full_like(a, end) for n, a in trainer.get_weights().items()})
        np.testing.assert_allclose(trainer.predict(np.eye(8, dtype=np.float32))[0], expected)
