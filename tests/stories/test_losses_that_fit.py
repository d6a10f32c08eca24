"""Losses, metrics and schedules as people name them, through `Trainer` and the command line, beside NumPy's numbers."""

from __future__ import annotations

import csv

import numpy as np
import onnx
import pytest
from job.problem import run

from onnxgrad import Trainer, inspect

RNG = np.random.default_rng(5)
X = RNG.normal(size=(12, 6)).astype(np.float32)
YES = (RNG.random((12, 1)) > 0.5).astype(np.float32)
LABELS = RNG.integers(0, 3, 12)
PARTS = """int64[1] last = {-1}, int64[2] flat = {-1, 1}, int64[2] wide = {-1, 3}, int64[3] grid = {0, 3, 4},
           int64[3] square = {0, 3, 3}, float low = {0.001}, float high = {0.999}"""


def matrix(width: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(6, width)).astype(np.float32)


def model(end: str, width: int, shape: str) -> onnx.ModelProto:
    """z = x times a matrix, then `end`."""
    made = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 6] x) => (float[{shape}] y) <{PARTS}> {{ z = MatMul(x, w)  {end} }}""")
    made.graph.initializer.append(onnx.numpy_helper.from_array(matrix(width), "w"))
    return made


def logits(width: int, x=X) -> np.ndarray:
    return x.astype(np.float64) @ matrix(width)


def first_loss(made: onnx.ModelProto, loss: str, target) -> float:
    return Trainer(made, loss=loss, optimizer="sgd", trainable="w").step(X, target)["loss"]


def bce(p: np.ndarray) -> float:
    return float(-(YES * np.log(p) + (1 - YES) * np.log(1 - p)).mean())


def cross_entropy(z: np.ndarray, labels: np.ndarray, axis: int = 1) -> float:
    z = np.moveaxis(z, axis, -1)
    p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    return float(-np.log(np.take_along_axis(p, labels[..., None], -1)).mean())


# ---- never two activations

TAILS = {
    "Reshape": "y = Reshape(s, {shape})",
    "Squeeze": "u = Unsqueeze(s, last) y = Squeeze(u, last)",
    "Clip": "y = Clip(s, low, high)",
    "ReduceMean": "u = Unsqueeze(s, last) y = ReduceMean<axes=[2], keepdims=0>(u)",
    "Transpose": "t = Transpose<perm=[1, 0]>(s) y = Transpose<perm=[1, 0]>(t)",
    "Identity": "y = Identity(s)",
    "all of them": "t = Transpose<perm=[1, 0]>(s) c = Clip(t, low, high) b = Transpose<perm=[1, 0]>(c) "
                   "u = Unsqueeze(b, last) m = ReduceMean<axes=[2], keepdims=0>(u) y = Reshape(m, {shape})",
}  # fmt: skip


@pytest.mark.parametrize("tail", TAILS)
def test_a_sigmoid_is_seen_behind(tail):
    made = model("s = Sigmoid(z) " + TAILS[tail].format(shape="flat"), 1, "N, 1")
    p = 1 / (1 + np.exp(-logits(1)))
    expected = bce(p if "Clip" not in TAILS[tail] else p.clip(0.001, 0.999))
    assert first_loss(made, "bce", YES) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("tail", TAILS)
def test_a_softmax_is_seen_behind(tail):
    made = model("s = Softmax(z) " + TAILS[tail].format(shape="wide"), 3, "N, 3")
    near = 1e-2 if "Clip" in TAILS[tail] else 1e-5
    expected = cross_entropy(logits(3), LABELS)
    assert first_loss(made, "cross_entropy", LABELS) == pytest.approx(expected, rel=near)


def test_probabilities_that_nothing_shows_are_measured_on_the_first_batch():
    made = model("e = Exp(z) t = ReduceSum(e, last) y = Div(e, t)", 3, "N, 3")
    expected = cross_entropy(logits(3), LABELS)
    assert first_loss(made, "cross_entropy", LABELS) == pytest.approx(expected, rel=1e-5)


def test_log_probabilities_and_probabilities_have_their_loss_and_it_is_guessed():
    logarithms = model("y = LogSoftmax(z)", 3, "N, 3")
    expected = cross_entropy(logits(3), LABELS)
    assert first_loss(logarithms, "nll", LABELS) == pytest.approx(expected, rel=1e-5)
    guess = inspect(logarithms).guess
    assert (guess.loss, guess.because) == ("nll", "output 'y' comes out of LogSoftmax; output 'y' holds "
                                           "log-probabilities (LogSoftmax)")  # fmt: skip
    mean = model("s = Sigmoid(z) y = ReduceMean<axes=[1]>(s)", 4, "N, 1")
    p = (1 / (1 + np.exp(-logits(4)))).mean(1, keepdims=True)
    assert first_loss(mean, "bce_probabilities", YES) == pytest.approx(bce(p), rel=1e-5)
    assert inspect(mean).guess.loss == "bce_probabilities"


# ---- the axis of the classes


@pytest.mark.parametrize("axis", [1, 2])
def test_the_axis_of_the_classes_follows_from_the_targets(axis):
    labels = RNG.integers(0, (0, 3, 4)[axis], (12, (0, 4, 3)[axis]))
    expected = cross_entropy(logits(12).reshape(12, 3, 4), labels, axis)
    made = model("y = Reshape(z, grid)", 12, "N, 3, 4")
    assert first_loss(made, "cross_entropy", labels) == pytest.approx(expected, rel=1e-5)


def test_where_both_axes_fit_the_error_names_the_flag(tmp_path, monkeypatch, capsys):
    """It trained along one of them, without a word."""
    monkeypatch.chdir(tmp_path)
    onnx.save(model("y = Reshape(z, square)", 9, "N, 3, 3"), "m.onnx")
    np.savez("d.npz", x=np.tile(X, (2, 1)), target=RNG.integers(0, 3, (24, 3)))
    line = ("train", "m.onnx", "--data", "d.npz", "-o", "t.onnx", "--loss", "cross_entropy")
    code, _, err = run(capsys, *line)
    assert code == 2
    assert "--axis 1" in err
    assert run(capsys, *line, "--epochs", 1, "--axis", 1)[0] == 0


# ---- metrics


@pytest.mark.parametrize("metric", ["accuracy", "f1"])
@pytest.mark.parametrize("scale", [1, 0.1])
def test_a_metric_does_not_depend_on_the_size_of_the_batch(metric, scale):
    """0.25 at 1 and 0.58 at 5: small logits that lie between 0 and 1 were read as probabilities."""
    trainer = Trainer(
        model("y = Identity(z)", 1, "N, 1"), loss="bce", metrics=metric, trainable="w"
    )
    x = (scale * X).astype(np.float32)
    assert len({trainer.evaluate(x, YES, batch_size=n)[metric] for n in (1, 2, 5, 8, 12, 99)}) == 1


def test_accuracy_of_a_regression_is_refused():
    with pytest.raises(ValueError, match="'accuracy' counts right answers"):
        Trainer(model("y = Identity(z)", 1, "N, 1"), loss="mse", metrics="accuracy", trainable="w")


def test_targets_in_another_form_are_taken_with_a_note():
    made = model("y = Identity(z)", 3, "N, 3")
    trainer = Trainer(made, loss="cross_entropy", optimizer="sgd", trainable="w")
    one_hot = np.eye(3, dtype=np.float32)[LABELS]
    expected = cross_entropy(logits(3), LABELS)
    assert trainer.step(X, one_hot)["loss"] == pytest.approx(expected, rel=1e-5)
    assert "is one-hot" in str(trainer.notes[-1])
    column = Trainer(model("y = Identity(z)", 1, "N, 1"), loss="mse", trainable="w")
    expected = float(((logits(1) - YES) ** 2).mean())
    assert column.step(X, YES[:, 0])["loss"] == pytest.approx(expected, rel=1e-5)
    assert "taken as a column [N, 1]" in str(column.notes[-1])


# ---- schedules

RATES = {
    "--schedule step --every 2 --factor 0.5": [0.01, 0.01, 0.005, 0.005],
    "--schedule exponential --factor 0.5": [0.01, 0.005, 0.0025, 0.00125],
    "--schedule step": [0.01] * 4,
    "--schedule plateau --every 1 --factor 0.5 --lr 1e-12": [1e-12, 1e-12, 5e-13, 5e-13],
    "--schedule plateau --every 1 --factor 0.5 --floor 8e-13 --lr 1e-12": [1e-12, 1e-12, 8e-13, 8e-13],
    "--schedule cosine --floor 0.002": [0.00946, 0.00704, 0.004, 0.00214],
    "--warmup 4 --schedule exponential --factor 0.5": [0.005, 0.01, 0.005, 0.0025],
}  # fmt: skip


@pytest.mark.parametrize("flags", RATES)
def test_rates_of_epochs(flags, tmp_path, monkeypatch, capsys):
    """Of 3 steps each; `step` and `exponential` counted steps, and had no flags."""
    monkeypatch.chdir(tmp_path)
    onnx.save(model("y = Identity(z)", 1, "N, 1"), "m.onnx")
    np.savez("d.npz", x=np.tile(X, (10, 1)), y=np.tile(YES + 0.5, (10, 1)).astype(np.float32))
    line = "train m.onnx --data d.npz -o t.onnx --optimizer sgd --lr 0.01 --loss mse --epochs 4 --val 0.2 --quiet"
    assert run(capsys, *line.split(), *flags.split())[0] == 0
    with open("runs/m-1/results.csv", newline="") as file:
        rates = [float(row["lr"]) for row in csv.DictReader(file)]
    assert rates == pytest.approx(RATES[flags], rel=0.05)
