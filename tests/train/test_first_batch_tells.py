"""What the first batch tells of scores and targets: scaled probabilities, no log-probabilities, axes of length 1."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxgrad import Trainer
from onnxgrad.errors import DataError
from onnxgrad.graph import load
from onnxgrad.model.ending import kind_of_scores
from onnxgrad.model.guess import guess
from onnxgrad.train.losses import CrossEntropy

RNG = np.random.default_rng(21)
X = RNG.normal(size=(14, 5)).astype(np.float32)
YES = (RNG.random((14, 1)) > 0.5).astype(np.float32)
LABELS = RNG.integers(0, 3, 14)
NUMBERS = "float hundred = {100}, float two = {2}, int64[1] last = {-1}, int64[1] first = {1}, " \
          "int64[3] turned = {2, 0, 1}, int64[4] picture = {0, 1, 2, 3}, int64[3] plain = {0, 2, 3}"  # fmt: skip


def model(end: str, width: int, shape: str = "") -> onnx.ModelProto:
    made = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 5] x) => (float[{shape or f"N, {width}"}] y) <{NUMBERS}> {{ z = MatMul(x, w) {end} }}""")
    w = np.random.default_rng(1).normal(size=(5, width)).astype(np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    return made


def logits(width: int) -> np.ndarray:
    w = np.random.default_rng(1).normal(size=(5, width)).astype(np.float32)
    return X.astype(np.float64) @ w


def nll(z: np.ndarray, labels: np.ndarray, axis: int = 1) -> float:
    z = np.moveaxis(z, axis, -1)
    log_p = z - np.log(np.exp(z).sum(-1, keepdims=True))
    return float(-np.take_along_axis(log_p, labels[..., None], -1).mean())


def trained(proto: onnx.ModelProto, loss, **settings) -> Trainer:
    return Trainer(proto, loss=loss, optimizer="sgd", lr=0.0, trainable="w", **settings)


# ---- log-probabilities


NO_LOGARITHMS = {
    "logits": "y = Identity(z)",
    "twice the logarithms": "l = LogSoftmax(z) y = Mul(l, two)",
    "another axis": "l = LogSoftmax <axis = 0> (z) y = Identity(l)",
    "costs": "l = LogSoftmax(z) y = Neg(l)",
}


@pytest.mark.parametrize("title", NO_LOGARITHMS)
def test_nll_refuses_what_are_no_log_probabilities(title):
    said = "output 'y' holds no log-probabilities: e to them adds up to .* over axis 1 on the first batch"
    with pytest.raises(DataError, match=said):
        trained(model(NO_LOGARITHMS[title], 3), "nll").step(X, LABELS)


@pytest.mark.parametrize(
    "end", ["y = LogSoftmax(z)", "l = LogSoftmax(z) y = Gather <axis = 1> (l, turned)",
            "e = Exp(z) t = ReduceSum(e, last) g = Log(t) y = Sub(z, g)"]
)  # fmt: skip
def test_nll_takes_log_probabilities_however_they_are_written(end):
    z = logits(3)[:, [2, 0, 1]] if "turned" in end else logits(3)
    trainer = trained(model(end, 3), "nll")
    assert trainer.step(X, LABELS)["loss"] == pytest.approx(nll(z, LABELS), rel=1e-5)


def test_means_of_log_probabilities_are_guessed_to_be_scores():
    end = "l = LogSoftmax(z) u = Unsqueeze(l, first) y = ReduceMean <axes = [1], keepdims = 0> (u)"
    proto = model(end, 3)
    assert guess(load(proto), LABELS).loss == "cross_entropy"
    assert trained(proto, "cross_entropy").step(X, LABELS)["loss"] == pytest.approx(
        nll(logits(3), LABELS), rel=1e-5
    )


def test_scaled_log_probabilities_are_said_to_be_taken_as_logits():
    trainer = trained(model("l = LogSoftmax(z) y = Mul(l, two)", 3), "cross_entropy")
    found = trainer.step(X, LABELS)["loss"]
    assert found == pytest.approx(nll(2 * logits(3), LABELS), rel=1e-5)
    said = "output 'y' is log-probabilities times a number, and is taken as logits"
    assert [str(n) for n in trainer.notes] == [said]


# ---- probabilities times a number


@pytest.mark.parametrize("loss", ["cross_entropy", "nll"])
@pytest.mark.parametrize(
    ("end", "total"),
    [("y = Mul(s, hundred)", 100), ("y = Mul(hundred, s)", 100), ("y = Div(s, two)", 0.5),
     ("g = Gather <axis = 1> (s, turned) h = Div(g, two) y = Mul(h, hundred)", 50)],
)  # fmt: skip
def test_percentages_of_classes_are_probabilities(end, total, loss):
    z = logits(3)[:, [2, 0, 1]] if "turned" in end else logits(3)
    proto = model(f"s = Softmax(z) {end}", 3)
    trainer = trained(proto, loss)
    assert trainer.step(X, LABELS)["loss"] == pytest.approx(nll(z, LABELS), rel=1e-4)
    assert [n.kind for n in trainer.notes] == ["probabilities"]
    if loss == "cross_entropy":
        assert f"which add up to {total:g} on the first batch" in str(trainer.notes[0])
    if "turned" not in end:
        assert kind_of_scores(load(proto).graph.outputs[0]) == "probabilities"


def test_percentages_of_one_row_are_probabilities_too():
    trainer = trained(model("s = Softmax(z) y = Mul(s, hundred)", 3), "cross_entropy")
    expected = nll(logits(3)[:1], LABELS[:1])
    assert trainer.step(X[:1], LABELS[:1])["loss"] == pytest.approx(expected, rel=1e-4)


def test_a_sigmoid_times_a_hundred_is_refused_by_bce_as_pytorch_refuses_it():
    trainer = trained(model("s = Sigmoid(z) y = Mul(s, hundred)", 1), "bce")
    with pytest.raises(DataError, match="lies between 0 and 100: probabilities times a number"):
        trainer.step(X, YES)


def test_sigmoids_times_a_hundred_are_said_to_be_taken_as_logits_of_classes():
    trainer = trained(model("s = Sigmoid(z) y = Mul(s, hundred)", 3), "cross_entropy")
    trainer.step(X, LABELS)
    assert "lies between 0 and 100 and does not add up to 100" in str(trainer.notes[0])


# ---- a Dropout behind the activation


@pytest.mark.parametrize("loss", ["bce", "bce_probabilities"])
def test_a_dropout_behind_a_sigmoid_does_not_touch_the_loss(loss, tmp_path):
    proto = model("s = Sigmoid(z) y = Dropout(s)", 1)
    trainer = Trainer(proto, loss=loss, optimizer="sgd", lr=0.5, trainable="w", metrics="accuracy")
    p = 1 / (1 + np.exp(-logits(1)))
    expected = -(YES * np.log(p) + (1 - YES) * np.log(1 - p)).mean()
    plain = Trainer(model("y = Sigmoid(z)", 1), loss=loss, optimizer="sgd", lr=0.5, trainable="w")
    assert trainer.evaluate(X, YES)["loss"] == pytest.approx(expected, rel=1e-5)
    for _ in range(3):
        assert trainer.step(X, YES)["loss"] == plain.step(X, YES)["loss"]
    assert "without the Dropout behind" in " ".join(map(str, trainer.notes))
    trainer.save(tmp_path / "tuned.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "tuned.onnx")
    np.testing.assert_allclose(session.run(None, {"x": X})[0], plain.predict(X), rtol=1e-5)


# ---- the class axis


def sequence(steps: int) -> tuple[onnx.ModelProto, np.ndarray]:
    """x [N, 5] by w [1, 7, 1, 5], an output [N, 7, T] of open length."""
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, T] x) => (float[N, 7, T] y) <int64[1] first = {1}>
        { u = Unsqueeze(x, first) y = Mul(u, w) }""")
    w = np.random.default_rng(1).normal(size=(1, 7, 1)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    return proto, RNG.normal(size=(3, steps)).astype(np.float32)


def test_an_open_length_that_equals_the_classes_is_asked_for():
    proto, x = sequence(7)
    labels = RNG.integers(0, 7, (3, 7))
    said = r"axis 1 or 2: labels of shape \[3, 7\] fit both.*CrossEntropy\(axis=1\).*--axis 1"
    with pytest.raises(DataError, match=said):
        trained(proto, "cross_entropy").step(x, labels)
    w = np.random.default_rng(1).normal(size=(1, 7, 1)).astype(np.float32)
    for axis in (1, 2):
        found = trained(proto, CrossEntropy(axis=axis)).step(x, labels)["loss"]
        assert found == pytest.approx(nll(x[:, None] * w, labels, axis), rel=1e-5)


def test_another_open_length_tells_the_axis_with_a_note():
    proto, x = sequence(4)
    trainer = trained(proto, "cross_entropy")
    trainer.step(x, RNG.integers(0, 7, (3, 4)))
    assert [n.kind for n in trainer.notes] == ["class axis"]


# ---- axes of length 1


SHAPES = {
    "[N, 1] for [N]": ("y = Squeeze(z, last)", 1, "N", (14, 1)),
    "[N] for [N, 1]": ("y = Identity(z)", 1, "N, 1", (14,)),
    "[N] for [N, 1, 1]": ("y = Unsqueeze(z, last)", 1, "N, 1, 1", (14,)),
    "[N, 1, H, W] for [N, H, W]": ("y = Reshape(z, plain)", 6, "N, 2, 3", (14, 1, 2, 3)),
    "[N, H, W] for [N, 1, H, W]": ("y = Reshape(z, picture)", 6, "N, 1, 2, 3", (14, 2, 3)),
}  # fmt: skip


@pytest.mark.parametrize("title", SHAPES)
def test_targets_that_differ_by_axes_of_length_1_are_taken_with_a_note(title):
    end, width, shape, wanted = SHAPES[title]
    target = RNG.normal(size=wanted).astype(np.float32)
    trainer = trained(model(end, width, shape), "mse", metrics="mae")
    difference = logits(width).ravel() - target.ravel()
    assert trainer.step(X, target)["loss"] == pytest.approx((difference**2).mean(), rel=1e-5)
    assert [n.kind for n in trainer.notes] == ["target"]
    assert trainer.evaluate(X, target)["mae"] == pytest.approx(np.abs(difference).mean(), rel=1e-5)
    assert guess(load(model(end, width, shape)), target).loss == "mse"


def test_a_column_of_labels_is_taken_as_labels():
    proto = model("y = Identity(z)", 3)
    trainer = trained(proto, "cross_entropy")
    found = trainer.step(X, LABELS[:, None])["loss"]
    assert found == pytest.approx(nll(logits(3), LABELS), rel=1e-5)
    assert guess(load(proto), LABELS[:, None]).loss == "cross_entropy"


@pytest.mark.parametrize("shape", [(14, 14), (1, 14), (14, 2)])
def test_nothing_is_ever_broadcast(shape):
    trainer = trained(model("y = Squeeze(z, last)", 1, "N"), "mse")
    with pytest.raises(DataError, match=r"expected \[N\]"):
        trainer.step(X, np.zeros(shape, np.float32))
