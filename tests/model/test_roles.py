"""What is a weight, and what only looks like one: by use, by the exporter's word and by the numbers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from model import merged_models as models

from onnxgrad import Trainer, inspect
from onnxgrad.model import patterns
from onnxgrad.model.origin import folded_from
from onnxgrad.model.trainable import TrainableModel

RNG = np.random.default_rng(0)
POSITION = np.arange(12)[:, None] / 10000 ** (np.arange(0, 8, 2) / 8)
CELLS = np.stack(np.meshgrid(np.arange(8) + 0.5, np.arange(8) + 0.5)).reshape(2, -1)


def mel() -> np.ndarray:
    """Triangles that overlap, ten of them over 65 frequencies."""
    peaks, at = np.linspace(0, 64, 12) ** 1.02, np.arange(65)
    up = (at - peaks[:-2, None]) / np.diff(peaks)[:-1, None]
    down = (peaks[2:, None] - at) / np.diff(peaks)[1:, None]
    return np.maximum(0, np.minimum(up, down))


def rounded_basis() -> np.ndarray:
    """A short Fourier transform as a kernel; sines of large angles are nothing but rounding."""
    angles = np.outer(np.arange(9), np.arange(16)).astype(np.float32) * np.float32(2 * np.pi / 16)
    waves = np.concatenate([np.cos(angles), np.sin(angles)])
    return (waves * np.hanning(17)[:-1].astype(np.float32))[:, None]


def bands(count: int) -> np.ndarray:
    """Two neighbours in each of eight rows, of `count` different numbers."""
    made = np.zeros((8, 8))
    for i in range(8):
        made[i, max(i - 1, 0) : max(i - 1, 0) + 2] = [
            1.37 ** (i % count),
            1.37 ** ((i + 3) % count),
        ]
    return made


POINTS = np.random.default_rng(1).permutation(np.tile([0.5, 1.5, 2.5, 4.5], 8))

FIXED = [
    ("a causal mask", np.triu(np.full((8, 8), -np.inf), 1), "mask"),
    ("a mask of large numbers", np.triu(np.full((1, 1, 8, 8), -1e9), 1), "mask"),
    ("the least number of float", np.triu(np.full((8, 8), -3.4e38), 1), "mask"),
    ("a triangle of ones", np.tril(np.ones((8, 8))), "mask"),
    ("windows that were shifted", np.where(RNG.normal(size=(2, 4, 4)) > 0, 0.0, -100.0), "mask"),
    ("slopes of distances", np.minimum(CELLS[0, :8] - CELLS[0, :8, None], 0) * 0.3, "table"),
    ("anchors", np.array([10, 13, 16, 30, 33, 23]) / 8, "written"),
    ("sinusoids with their rounding, windowed", rounded_basis(), "window"),
    ("positions", np.arange(16.0).reshape(1, 16, 1, 1), "table"),
    ("evenly spaced", np.linspace(-1, 1, 9), "table"),
    ("a basis of trends", np.linspace(0, 1, 12) ** np.arange(3)[:, None], "table"),
    ("powers of two", 2.0 ** np.arange(4), "table"),
    ("four of them, as counted", np.arange(1.0, 5.0), "table"),
    ("sinusoids", np.concatenate([np.sin(POSITION), np.cos(POSITION)], 1), "table"),
    (
        "sinusoids in turn",
        np.stack([np.sin(POSITION), np.cos(POSITION)], 2).reshape(1, 12, 8),
        "table",
    ),
    ("frequencies of a rotary embedding", 1 / 10000 ** (np.arange(0, 16, 2) / 16), "table"),
    ("a basis of cosines", np.fft.rfft(np.eye(32)).real, "table"),
    ("Hann", np.hanning(400), "window"),
    ("one period of Hann", np.hanning(401)[:-1], "window"),
    ("Kaiser", np.kaiser(64, 8.0), "window"),
    ("mel filters", mel(), "filters"),
    ("cells", CELLS[None], "grid"),
    ("the fewest points of a grid", POINTS, "grid"),
    ("bands of enough numbers", bands(6), "filters"),
    ("strides", np.repeat([8.0, 16, 32], [64, 16, 4])[None], "grid"),
]

LEARNED = [
    ("scales that are all alike", np.repeat([0.25, 0.75], 16).reshape(2, 4, 4)),
    ("a matrix that begins as a multiple of the identity", np.eye(8) * 0.3),
    ("five numbers of few digits", np.array([0.1, 0.35, 0.2, 0.7, 0.15])),
    ("a bias of two numbers that mirrors by chance", np.repeat([0.3, 1.7, 0.3], [6, 8, 6])),
    ("too few points for a grid", POINTS[:-1]),
    ("bands of few numbers", bands(5)),
    ("bands in a small matrix", bands(6)[:7]),
    ("bands, one of them negative", np.where(bands(6) > 4, -1, 1) * bands(6)),
    ("normal", RNG.normal(size=(16, 16))),
    ("a short vector", RNG.normal(size=5)),
    ("four numbers", RNG.normal(size=4)),
    ("an identity matrix", np.eye(16)),
    ("a transform that starts as identity", np.array([1.0, 0, 0, 0, 1, 0])),
    ("a forget gate's bias of one", np.repeat([0.0, 0, 1, 0], 8)),
    ("pruned", RNG.normal(size=(16, 16)) * (RNG.random((16, 16)) < 0.2)),
    ("a price", np.array([2e5])),
    ("two large biases", np.array([-2e5, 1.5])),
    ("an embedding with an empty row", np.concatenate([np.zeros((1, 8)), RNG.normal(size=(9, 8))])),
    ("ones", np.ones(64)),
    ("positive, half of it", np.where(RNG.random((16, 8)) < 0.5, 0, RNG.random((16, 8)))),
    ("a scale that has hardly left one", 1 + 1e-4 * RNG.normal(size=8)),
    ("scales that have hardly left a tenth", 0.1 + 1e-5 * RNG.normal(size=(32, 1, 1))),
    ("Sobel", np.array([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float", "double"])
@pytest.mark.parametrize(("title", "array", "kind"), FIXED, ids=[f[0] for f in FIXED])
def test_functions_of_the_index_are_no_weights(title, array, kind, dtype):
    assert patterns.describe(array.astype(dtype))[0] == kind


@pytest.mark.parametrize(("title", "array"), LEARNED, ids=[w[0] for w in LEARNED])
def test_weights_are(title, array):
    assert patterns.describe(array.astype(np.float32)) is None


def test_rounded_weights_of_a_layer_are_no_grid():
    rounded = np.round(RNG.normal(size=(32, 32)) * 8) / 8
    assert patterns.describe(rounded, pointwise=False) is None


def test_a_layers_own_scale_may_look_like_a_table():
    """A bias in order of its index, as sorted channels have it: BatchNormalization reads no tables."""
    nodes = [models.node("BatchNormalization", "x scale bias mean var", "y")]
    ramp = np.linspace(0.5, 1.5, 8, dtype=np.float32)
    values = {"scale": ramp, "bias": ramp - 1, "mean": ramp, "var": ramp}
    found = tensors(models.model(nodes, values, x=("N", 8), y=("N", 8)))
    assert (found["scale"], found["bias"]) == ("weight", "weight")


def test_random_tensors_of_many_shapes_are_weights():
    for shape in [
        (4,),
        (7,),
        (16,),
        (4, 4),
        (1, 8),
        (2, 3, 4),
        (8, 1, 3, 3),
        (64, 16),
        (5, 1),
        (300,),
    ]:
        for scale in (1e-3, 1.0, 50.0):
            array = (RNG.normal(size=shape) * scale).astype(np.float32)
            assert patterns.describe(array) is None, (shape, scale)


def tensors(model) -> dict[str, str]:
    return {t.name: t.kind for t in TrainableModel(model).tensors()}


def test_a_mask_is_not_trained_unless_named():
    mask = np.triu(np.full((8, 8), -np.inf), 1).astype(np.float32)
    model = models.beside(mask)
    trainer = Trainer(model, loss="mse")
    assert list(trainer.get_weights()) == ["w", "v"]
    (note,) = [n for n in trainer.notes if n.kind == "not a weight"]
    assert (note.kind, note.subject) == ("not a weight", "table")
    assert str(note) == (
        "tensor 'table' is not trained: it holds -inf (mask); --trainable all,table trains it"
    )
    named = TrainableModel(model).select(["all", "table"])
    assert named == ["w", "table", "v"]


def test_the_exporter_tells_buffers_from_parameters():
    """What it says counts more than what the numbers look like."""
    table = np.arange(8, dtype=np.float32)
    for kind, expected in (("BUFFER", "buffer"), ("PARAMETER", "weight")):
        infos = {"table": {models.KIND: kind}}
        assert tensors(models.beside(table, infos=infos))["table"] == expected
    random = models.beside(models.normal(8), infos={"table": {models.KIND: "BUFFER"}})
    assert tensors(random)["table"] == "buffer"


def test_what_the_exporter_computed_from_no_parameter_is_constant():
    infos = {"table": {models.FOLDED: "['val_3', 'zeros']"}}
    assert tensors(models.beside(models.normal(8), infos=infos))["table"] == "constant"
    infos = {"table": {models.FOLDED: "['val_3', 'gamma']"}}
    assert tensors(models.beside(models.normal(8), infos=infos))["table"] == "weight"


def test_the_normalisation_of_an_input_is_not_trained():
    nodes = [
        models.node("Sub", "x mean", "c"),
        models.node("Div", "c std", "n"),
        models.node("Conv", "n w", "y"),
    ]
    values = {
        "mean": np.array([0.485, 0.456, 0.406], np.float32).reshape(1, 3, 1, 1),
        "std": np.array([0.229, 0.224, 0.225], np.float32).reshape(1, 3, 1, 1),
        "w": models.normal(2, 3, 3, 3),
    }
    model = models.model(nodes, values, x=("N", 3, 8, 8), y=("N", 2, 6, 6))
    assert tensors(model) == {"mean": "normalisation", "std": "normalisation", "w": "weight"}


def test_scales_of_quantisation_are_not_trained():
    nodes = [
        models.node("QuantizeLinear", "x scale", "q"),
        models.node("DequantizeLinear", "q scale", "d"),
        models.node("MatMul", "d w", "y"),
    ]
    values = {"scale": np.array(0.02, np.float32), "w": models.normal(4, 2)}
    assert tensors(models.model(nodes, values, y=("N", 2)))["scale"] == "quantisation"


def test_a_learned_scalar_of_pytorch_is_a_weight_and_a_setting_is_not():
    nodes = [models.node("Mul", "x logit_scale", "a"), models.node("Mul", "a onnx::Mul_7", "h")]
    nodes.append(models.node("MatMul", "h w", "y"))
    one = np.array(1.5, np.float32)
    values = {"logit_scale": one, "onnx::Mul_7": one, "w": models.normal(4, 2)}
    found = tensors(models.model(nodes, values, y=("N", 2)))
    assert found == {"logit_scale": "weight", "onnx::Mul_7": "setting", "w": "weight"}
    other = tensors(models.model(nodes, values, y=("N", 2), producer="by hand"))
    assert other["logit_scale"] == "setting"


def test_ones_and_zeros_of_a_group_norm_that_was_taken_apart_are_constants():
    nodes = [models.node("InstanceNormalization", "x val_1 val_2", "n")]
    nodes.append(models.node("Conv", "n w", "y"))
    values = {"val_1": models.ones(4), "val_2": models.zeros(4), "w": models.normal(2, 4, 1)}
    model = models.model(nodes, values, x=("N", 4, 6), y=("N", 2, 6))
    assert tensors(model) == {"val_1": "constant", "val_2": "constant", "w": "weight"}


def test_naming_statistics_says_why_they_cannot_be_trained():
    subject = TrainableModel(models.torchscript_norms())
    text = "trainable names 'n1.running_mean', which cannot be trained: running statistics"
    with pytest.raises(ValueError, match=text):
        subject.select("n1.running_mean")


def test_a_weight_of_another_output_says_which():
    model = models.model(
        [models.node("MatMul", "x w", "y")], {"w": models.normal(4, 2)}, y=("N", 2)
    )
    model.graph.node.append(models.node("MatMul", "x v", "other"))
    model.graph.initializer.append(models.numpy_helper.from_array(models.normal(4, 3), "v"))
    model.graph.output.append(
        models.helper.make_tensor_value_info("other", models.TensorProto.FLOAT, ("N", 3))
    )
    found = {t.name: t for t in TrainableModel(model).tensors()}
    assert found["v"].reason == "only output 'other' depends on it, and the loss is of 'y'"
    assert Trainer(model, loss={"other": "mse"}).get_weights().keys() == {"v"}


def test_statistics_that_are_repeated_for_every_row_are_no_weights():
    """InstanceNorm with running statistics: they were trained as weights."""
    model = models.instance_norm()
    found = {t.name: t.kind for t in TrainableModel(model).tensors()}
    assert (found["n.running_mean"], found["n.running_var"]) == ("statistic", "statistic")
    assert (found["n.weight"], found["n.bias"]) == ("weight", "weight")
    assert "stays frozen: its statistics are computed" in str(inspect(model).notes)


def test_the_two_numbers_of_a_one_hot_are_a_setting():
    """They were trained: tf2onnx keeps [0, 1] as an initializer."""
    nodes = [models.node("OneHot", "x depth pair", "h"), models.node("MatMul", "h w", "y")]
    tensors = {"depth": np.array(6), "pair": np.array([0, 1], np.float32), "w": models.normal(6, 2)}
    model = models.model(nodes, tensors, x=("N",), y=("N", 2), kind=onnx.TensorProto.INT64)
    assert TrainableModel(model).select("all") == ["w"]


def test_a_batch_norm_by_the_statistics_of_its_own_input_is_no_frozen_one():
    """Keras writes a layer normalisation this way."""
    nodes = [
        models.node("MatMul", "x w", "h"),
        models.node("Transpose", "h", "t"),
        models.node("ReduceMean", "h", "mean", axes=[1], keepdims=0),
        models.node("ReduceSumSquare", "h", "var", axes=[1], keepdims=0),
        models.node("BatchNormalization", "t one zero mean var", "b"),
        models.node("Transpose", "b", "y"),
    ]
    tensors = {"w": models.normal(4, 3), "one": models.ones(2), "zero": models.zeros(2)}
    model = models.model(nodes, tensors, x=(2, 4), y=(2, 3))
    assert "frozen" not in {n.kind for n in inspect(model).notes}
    assert "frozen" not in {n.kind for n in Trainer(model, loss="mse").notes}


def test_a_minus_leaves_weights_out():
    nodes = [models.node("MatMul", "x a.weight", "h"), models.node("MatMul", "h b.weight", "y")]
    model = models.model(
        nodes, {"a.weight": models.normal(4, 4), "b.weight": models.normal(4, 2)}, y=("N", 2)
    )
    assert set(Trainer(model, loss="mse", trainable=["all", "-a.*"]).get_weights()) == {"b.weight"}
    with pytest.raises(
        ValueError, match=r"trainable is empty: nothing is left after -\*, expected"
    ):
        Trainer(model, loss="mse", trainable=["all", "-*"])
    with pytest.raises(ValueError, match="matches none of the model's 2 weights"):
        Trainer(model, loss="mse", trainable=["all", "-c"])


def test_scales_of_channels_are_not_trained():
    """One for each channel: before, they were."""
    nodes = [
        models.node("QuantizeLinear", "w scale zero", "q", axis=1),
        models.node("DequantizeLinear", "q scale zero", "d", axis=1),
        models.node("MatMul", "x d", "y"),
    ]
    tensors = {"scale": np.array([0.02, 0.03], np.float32), "zero": np.zeros(2, np.int8)}
    model = models.model(nodes, {**tensors, "w": models.normal(4, 2)}, y=("N", 2))
    assert set(Trainer(model, loss="mse").get_weights()) == {"w"}


def test_zeros_and_ones_that_are_a_factor_are_a_mask():
    """Coupling layers of a flow; as a bias, such numbers are an LSTM's first forget gates."""
    halves = np.array([0, 1, 0, 1], np.float32)
    nodes = [models.node("MatMul", "x w", "a"), models.node("Mul", "a half", "b")]
    nodes += [models.node("Sub", "val_1 half", "rest"), models.node("Mul", "b rest", "c")]
    nodes += [models.node("Add", "c gates", "y")]
    tensors = {"w": models.normal(4, 4), "half": halves, "gates": halves, "val_1": np.float32(1)}
    model = models.model(nodes, tensors, y=("N", 4))
    assert TrainableModel(model).select("all") == ["w", "gates"]


def test_weights_that_a_loop_carries_are_weights():
    """Keras's recurrent layers, through tf2onnx: they were called settings, and only the last layer was trained."""
    info = onnx.helper.make_tensor_value_info
    shapes = {"h": ["N", 3], "w": [3, 3]}
    inputs = [info("i", onnx.TensorProto.INT64, []), info("go", onnx.TensorProto.BOOL, [])]
    inputs += [info(f"{n}.in", onnx.TensorProto.FLOAT, d) for n, d in shapes.items()]
    outputs = [info("goes", onnx.TensorProto.BOOL, [])]
    outputs += [info(f"{n}.out", onnx.TensorProto.FLOAT, d) for n, d in shapes.items()]
    body = [models.node("MatMul", "h.in w.in", "p"), models.node("Tanh", "p", "h.out")]
    body += [models.node("Identity", "w.in", "w.out"), models.node("Identity", "go", "goes")]
    graph = onnx.helper.make_graph(body, "body", inputs, outputs)
    loop = onnx.helper.make_node("Loop", ["count", "", "a", "w"], ["b", "w.last"], body=graph)
    nodes = [models.node("MatMul", "x u", "a"), loop, models.node("MatMul", "b v", "y")]
    tensors = {
        "count": np.array(3),
        "u": models.normal(4, 3),
        "w": models.normal(3, 3),
        "v": models.normal(3, 2),
    }
    model = models.model(nodes, tensors, y=("N", 2), producer="tf2onnx")
    trainer = Trainer(model, loss="mse", optimizer="sgd", lr=0.1)
    before = trainer.get_weights()["w"].copy()
    trainer.step(models.normal(5, 4), models.zeros(5, 2))
    assert set(trainer.get_weights()) == {"u", "w", "v"}
    assert np.abs(trainer.get_weights()["w"] - before).max() > 0
    assert {p.name for p in inspect(model).parameters if p.trainable} == {"u", "w", "v"}


def test_a_table_of_sines_may_round_its_zeros():
    """sin(2πkm/n) in float32: a column that should be 0 holds the rounding of the angles."""
    index = np.arange(10, dtype=np.float32)
    table = np.sin(np.float32(2 * np.pi) * np.outer(index, index) / np.float32(10))
    assert 0 < np.abs(table[:, 5]).max() < 1e-4
    assert patterns.describe(table)[0] == "table"


def test_zeros_of_the_shape_of_what_is_still_computed_are_constant():
    """`zeros_like(scores)`: the exporter notes the scores, of which it used the shape."""
    nodes = [models.node("MatMul", "x w", "linear"), models.node("Max", "linear zeros_like", "y")]
    tensors = {"w": models.normal(4, 4), "zeros_like": models.zeros(6, 4)}
    infos = {"zeros_like": {models.FOLDED: "['linear', 'val_1', 'val_2']"}}
    model = models.model(nodes, tensors, x=(6, 4), y=(6, 4), infos=infos)
    assert TrainableModel(model).select("all") == ["w"]


@pytest.mark.parametrize(
    ("number", "said"), [(0.0123456, True), (8.0, False), (1 / 48**0.5, False)]
)
def test_elements_of_parameters_may_look_like_settings(number, said):
    nodes = [models.node("MatMul", "x w", "a"), models.node("Mul", "a onnx::Mul_3", "y")]
    tensors = {"w": models.normal(4, 4), "onnx::Mul_3": np.array(number, np.float32)}
    trainer = Trainer(models.model(nodes, tensors, y=("N", 4)), loss="mse")
    assert list(trainer.get_weights()) == ["w"]
    assert ("perhaps parameters" in {note.kind for note in trainer.notes}) == said


@pytest.mark.parametrize("text", ["5", "[", "[" * 5000, "-" * 9000 + "1", "(" * 200 + ")" * 200,
                                  "['a'" + " " * 10_000 + "]",
                                  "0" + "+0" * 4000, "open('x')", "{1: 2}[1]", "\0"])  # fmt: skip
def test_what_a_stranger_says_a_tensor_was_folded_from(text):
    """It is written as Python, whose parser has many ways to fail."""
    assert folded_from({models.FOLDED: text}) == []


@pytest.mark.parametrize("producer", ["", "pytorch"])
def test_single_numbers(producer):
    """Settings have no name of their own, or no axis; what a layer reads is a weight; PyTorch keeps names."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 1, 4] x) => (float[N, 1, 4] y)
        <float a = {2}, float[1] val_1 = {2}, float[1] scale = {3}, float[1, 1, 1] val_2 = {0.5}, float val_3 = {0.5},
         float[1] val_4 = {0.25}>
        { h = Mul(x, a) i = Add(h, val_1) j = Mul(i, scale) k = Conv(j, val_2) l = PRelu(k, val_3)
          y = PRelu(l, val_4) }""")
    model.producer_name = producer
    assert tensors(model) == {
        "a": "weight" if producer else "setting", "val_1": "setting", "scale": "weight", "val_2": "weight",
        "val_3": "setting", "val_4": "weight",
    }  # fmt: skip
