"""Weights of rows and shares of classes, beside float64 NumPy and with gradients by differences."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxgrad
from onnxgrad.train.losses import MSE, BinaryCrossEntropy, CrossEntropy, Huber
from onnxgrad.train.row_losses import RowWeighted, SoftCrossEntropy

RNG = np.random.default_rng(4)
X = RNG.normal(size=(6, 3))
W = RNG.normal(size=(3, 2))
WEIGHT = np.array([1.0, 0, 2, 0.5, 3, 1])


def model(w: np.ndarray = W) -> onnx.ModelProto:
    made = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[N, 3] x) => (float[N, 2] y) { y = MatMul(x, w) }""")
    made.graph.initializer.append(onnx.numpy_helper.from_array(w.astype(np.float32), "w"))
    return made


def log_p(w: np.ndarray) -> np.ndarray:
    scores = X @ w
    return scores - np.log(np.exp(scores).sum(1, keepdims=True))


LABELS = RNG.integers(0, 2, 6)
YES_NO = RNG.integers(0, 2, (6, 2)).astype(float)
NUMBERS = RNG.normal(size=(6, 2))
SHARES = RNG.dirichlet([1, 1], 6)


def rows_of_bce(w):
    p = 1 / (1 + np.exp(-(X @ w)))
    return -(YES_NO * np.log(p) + (1 - YES_NO) * np.log(1 - p)).mean(1)


def huber(d):
    return np.where(np.abs(d) < 1, d * d / 2, np.abs(d) - 0.5)


CASES = {
    "cross_entropy": (CrossEntropy(), LABELS, lambda w: -log_p(w)[np.arange(6), LABELS]),
    "bce": (BinaryCrossEntropy(), YES_NO, rows_of_bce),
    "mse": (MSE(), NUMBERS, lambda w: ((X @ w - NUMBERS) ** 2).mean(1)),
    "huber": (Huber(), NUMBERS, lambda w: huber(X @ w - NUMBERS).mean(1)),
    "shares": (SoftCrossEntropy(), SHARES, lambda w: -(SHARES * log_p(w)).sum(1)),
}


@pytest.mark.parametrize("name", CASES)
def test_weights_of_rows(name):
    loss, target, rows = CASES[name]

    def reference(w: np.ndarray) -> float:
        return float((rows(w) * WEIGHT).sum() / WEIGHT.sum())

    trainer = onnxgrad.Trainer(model(), loss=RowWeighted(loss), optimizer="sgd", lr=1.0)
    assert trainer.target_names == ("target", "target_weight")
    batch = {"x": X, "target": target, "target_weight": WEIGHT}
    assert trainer.evaluate([batch])["loss"] == pytest.approx(reference(W), rel=1e-5)
    trainer.step(batch)
    gradient = W - trainer.get_weights()["w"]
    steps = np.zeros_like(W)
    for at in np.ndindex(W.shape):
        for sign in (1, -1):
            moved = W.copy()
            moved[at] += sign * 1e-5
            steps[at] += sign * reference(moved) / 2e-5
    np.testing.assert_allclose(gradient, steps, rtol=1e-4, atol=1e-6)


def test_batches_count_by_their_weights():
    loss, target, rows = CASES["mse"]
    trainer = onnxgrad.Trainer(model(), loss=RowWeighted(loss))
    parts = [
        {"x": X[p], "target": target[p], "target_weight": WEIGHT[p]}
        for p in (slice(4), slice(4, 6))
    ]
    expected = (rows(W) * WEIGHT).sum() / WEIGHT.sum()
    assert trainer.evaluate(parts)["loss"] == pytest.approx(expected, rel=1e-5)


def test_smoothed_shares():
    trainer = onnxgrad.Trainer(model(), loss=SoftCrossEntropy(label_smoothing=0.2, weight=(1, 3)))
    shares = 0.8 * SHARES + 0.1
    expected = -(shares * log_p(W) * [1, 3]).sum(1).mean()
    found = trainer.evaluate([{"x": X, "target": SHARES}])["loss"]
    assert found == pytest.approx(expected, rel=1e-5)


def test_smoothing_and_weights_of_rows_are_refused():
    with pytest.raises(ValueError, match="do not go together"):
        onnxgrad.Trainer(model(), loss=RowWeighted(CrossEntropy(label_smoothing=0.1)))
