"""Metrics beside their definitions, counted pair by pair and threshold by threshold."""

from __future__ import annotations

import numpy as np
import pytest

from onnxgrad.train import metrics
from onnxgrad.train.losses import Target

RNG = np.random.default_rng(0)
YES_NO = Target("target", np.dtype(np.float32), None, kind="yes or no", of="y")
LABELS = Target("target", np.dtype(np.int64), None, classes=3, axis=1, of="y", kind="labels")
NUMBERS = Target("target", np.dtype(np.float32), None, of="y", kind="numbers")


def score(name: str, prediction: np.ndarray, target: np.ndarray, spec: Target) -> float:
    """In two batches, as a run has them."""
    (metric,) = metrics.resolve(name)
    state = metric.start()
    for part in (slice(None, 7), slice(7, None)):
        metric.add(state, prediction[part], target[part], spec)
    return metric.result(state, {})


def auc_by_pairs(scores: np.ndarray, truth: np.ndarray) -> float:
    pairs = [(a > b) + (a == b) / 2 for a in scores[truth] for b in scores[~truth]]
    return float(np.mean(pairs))


def test_auc_counts_pairs_and_halves_ties():
    scores = RNG.integers(0, 6, 40).astype(np.float32)  # with ties
    truth = RNG.random(40) < 0.3
    found = score("auc", scores, truth.astype(np.float32), YES_NO)
    assert found == pytest.approx(auc_by_pairs(scores, truth), abs=1e-12)


def test_auc_of_classes_is_the_mean_of_each_against_the_rest():
    logits = RNG.normal(size=(30, 3))
    labels = RNG.integers(0, 3, 30)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = np.mean([auc_by_pairs(p[:, c], labels == c) for c in range(3)])
    assert score("auc", logits, labels, LABELS) == pytest.approx(expected, abs=1e-12)
    one = np.zeros(30, np.int64)
    assert np.isnan(score("auc", logits, one, LABELS))


def test_average_precision_by_its_sum_over_thresholds():
    scores = RNG.integers(0, 8, 40).astype(np.float64)
    truth = RNG.random(40) < 0.4
    total, before = 0.0, 0.0
    for least in sorted(set(scores), reverse=True):
        chosen = scores >= least
        recall, precision = (chosen & truth).sum() / truth.sum(), truth[chosen].mean()
        total, before = total + (recall - before) * precision, recall
    found = score("average_precision", scores, truth.astype(float), YES_NO)
    assert found == pytest.approx(total, abs=1e-12)


# scikit-learn 1.9 on the numbers below: precision_score, recall_score, f1_score, balanced_accuracy_score
ANSWERS = np.array([0, 2, 1, 1, 0, 2, 2, 1, 0, 1, 2, 0])
TRUTH = np.array([0, 2, 1, 0, 0, 1, 2, 1, 2, 1, 2, 1])
RECORDED = {
    "precision_macro": 0.6666666666666666, "precision_weighted": 0.6875,
    "recall_macro": 0.6722222222222222, "recall_weighted": 0.6666666666666666,
    "f1_macro": 0.6626984126984127, "f1_weighted": 0.6706349206349206,
    "balanced_accuracy": 0.6722222222222222,
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDED)
def test_averages_are_those_of_scikit_learn(name):
    assert score(name, np.eye(3)[ANSWERS], TRUTH, LABELS) == pytest.approx(RECORDED[name])


def test_yes_and_no():
    truth = np.array([1, 1, 1, 0, 0, 0, 0, 0, 0, 1.0])
    logits = np.array([2, -1, 3, 1, -2, -2, -3, -1, -1, 2.0])
    assert score("precision", logits, truth, YES_NO) == pytest.approx(3 / 4)
    assert score("recall", logits, truth, YES_NO) == pytest.approx(3 / 4)
    probabilities = 1 / (1 + np.exp(-logits))
    assert score("recall", probabilities, truth, YES_NO) == pytest.approx(3 / 4)


def test_yes_begins_at_a_half_or_at_nought():
    """As probabilities where all numbers of all batches could be one; else as logits."""
    truth = np.array([1, 0, 1, 0, 1, 1, 0, 1.0])
    between = np.array([0.4, 0.2, 0.9, 0.6, 0.3, 0.8, 0.1, 0.7])
    assert score("accuracy", between, truth, YES_NO) == 5 / 8
    logits = np.concatenate([between[:-1], [1.5]])  # the second batch tells
    assert score("accuracy", logits, truth, YES_NO) == 5 / 8
    assert score("recall", logits, truth, YES_NO) == 1
    assert score("precision", logits, truth, YES_NO) == 5 / 8
    assert score("accuracy", between - 0.5, truth, YES_NO) == 5 / 8
    assert score("accuracy", np.concatenate([[-0.1], logits[1:]]), truth, YES_NO) == 4 / 8


def test_one_of_the_largest():
    scores = np.array([[5, 4, 3.0], [5, 4, 3], [5, 4, 3], [1, 1, 1]])
    labels = np.array([0, 1, 2, 2])
    assert score("accuracy", scores, labels, LABELS) == 1 / 4
    assert score("top2", scores, labels, LABELS) == 3 / 4, "of equal ones any may count"
    assert score("top3", scores, labels, LABELS) == 1


def test_macro_of_several_columns_is_the_columns_mean():
    truth = RNG.random((20, 3)) < 0.5
    chosen = RNG.random((20, 3)) < 0.5
    each = [2 * (t & c).sum() / (t.sum() + c.sum()) for t, c in zip(truth.T, chosen.T, strict=True)]
    found = score("f1_macro", np.where(chosen, 1.0, -1.0), truth.astype(float), YES_NO)
    assert found == pytest.approx(np.mean(each))


def test_errors_of_numbers():
    y, p = RNG.normal(3, 1, (20, 1)), RNG.normal(3, 1, (20, 1))
    assert score("rmse", p, y, NUMBERS) == pytest.approx(np.sqrt(((y - p) ** 2).mean()))
    assert score("mape", p, y, NUMBERS) == pytest.approx((np.abs(y - p) / np.abs(y)).mean())


def test_a_metric_of_an_output_has_its_name():
    (found,) = metrics.resolve("box=mae")
    assert (found.name, found.output) == ("box_mae", "box")
    with pytest.raises(ValueError, match="of output 'box', and those with a loss are 'y'"):
        metrics.check([found], {"y": NUMBERS})
    with pytest.raises(ValueError, match="counts right answers"):
        metrics.check(metrics.resolve("auc"), {"y": NUMBERS})
