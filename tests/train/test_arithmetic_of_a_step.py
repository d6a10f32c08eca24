"""What a step does with its gradients, beside the same arithmetic in NumPy: accumulation, clipping, rates, groups.

The model is y = x·w with the loss mean((y − t)²), whose gradient is 2·xᵀ(x·w − t)/rows: nothing of onnxgrad is needed
to know what every step must give.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from train import problems

from onnxgrad import Trainer, kernels
from onnxgrad.train import schedules
from onnxgrad.train.step import training_step
from onnxgrad.train.step.bound_session import session_options

RNG = np.random.default_rng(3)
X = RNG.normal(size=(20, 3)).astype(np.float32)
T = RNG.normal(size=(20, 1)).astype(np.float32) * 4
W = np.array([[0.5], [-1.0], [2.0]], np.float32)
LR = 0.1


def linear() -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> net (float[N, 3] x) => (float[N, 1] y) { y = MatMul(x, w) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(W, "w"))
    return model


def make(**settings) -> Trainer:
    settings.setdefault("optimizer", "sgd")
    return Trainer(linear(), loss="mse", lr=LR, **settings)


def gradient(w: np.ndarray, rows: slice) -> np.ndarray:
    x, t = X[rows].astype(np.float64), T[rows].astype(np.float64)
    return 2 * x.T @ (x @ w - t) / len(x)


def fit(trainer: Trainer, **settings) -> np.ndarray:
    trainer.fit(X, T, batch_size=4, shuffle=False, **settings)
    return trainer.get_weights()["w"]


def groups_of_batches(per_group: int) -> list[list[slice]]:
    batches = [slice(at, at + 4) for at in range(0, 20, 4)]
    return [batches[i : i + per_group] for i in range(0, 5, per_group)]


@pytest.mark.parametrize("accumulate", [1, 2, 3, 5])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_gradients_of_a_group_are_averaged_then_clipped(accumulate, clip):
    """Five batches: the last group of 2 and of 3 is short, and is the mean of what it has."""
    w = W.astype(np.float64)
    for group in groups_of_batches(accumulate):
        mean = sum(gradient(w, rows) for rows in group) / len(group)
        norm = math.sqrt(float((mean**2).sum()))
        w = w - LR * mean * (1 if clip is None else min(1, clip / norm))
    got = fit(make(accumulate=accumulate, clip_norm=clip))
    np.testing.assert_allclose(got, w, rtol=2e-5)


def test_the_norm_that_is_logged_is_that_of_the_mean():
    trainer = make(accumulate=2)
    trainer.step(X[:4], T[:4])
    logs = trainer.step(X[4:8], T[4:8])
    mean = (gradient(W, slice(0, 4)) + gradient(W, slice(4, 8))) / 2
    assert logs["grad_norm"] == pytest.approx(float(np.linalg.norm(mean)), rel=1e-5)


def test_clip_value_limits_each_number():
    expected = W - LR * np.clip(gradient(W, slice(0, 4)), -0.3, 0.3)
    trainer = make(clip_value=0.3)
    trainer.step(X[:4], T[:4])
    np.testing.assert_allclose(trainer.get_weights()["w"], expected, rtol=1e-6)


def test_the_schedule_after_a_warmup_begins_at_its_own_beginning():
    """Two steps up, then four down a line that ends where the run does."""
    schedule = schedules.Warmup(steps=2, then=schedules.Linear()).bound(6)
    rates = [schedule.rate(1.0, step) for step in range(6)]
    np.testing.assert_allclose(rates, [0, 0.5, 1, 0.75, 0.5, 0.25])


def test_rates_of_a_run_are_used_one_after_the_other():
    w = W.astype(np.float64)
    for (rows,), rate in zip(groups_of_batches(1), [0, 0.5, 1, 2 / 3, 1 / 3], strict=True):
        w = w - LR * rate * gradient(w, rows)
    np.testing.assert_allclose(fit(make(schedule="linear", warmup=2)), w, rtol=2e-5)


# ---- groups


def two_layers() -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> net (float[N, 3] x) => (float[N, 1] y) '
        "{ h = MatMul(x, first) a = Tanh(h) y = MatMul(a, second) }"
    )
    for name, shape in (("first", (3, 4)), ("second", (4, 1))):
        array = np.random.default_rng(5).normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def grouped() -> Trainer:
    return Trainer(
        two_layers(),
        loss="mse",
        lr=1e-2,
        optimizer="adam",
        groups=[{"params": "second", "lr": 0.5}],
    )


def test_the_optimizer_state_of_every_group_is_restored(tmp_path):
    one, other = grouped(), grouped()
    for _ in range(3):
        one.step(X, T)
    one.save_checkpoint(tmp_path / "c")
    other.load_checkpoint(tmp_path / "c")
    expected, got = one.state().optimizer_state, other.state().optimizer_state
    assert {name.split("/", 1)[1] for name in expected} == {"first", "second"}
    for name, array in expected.items():
        assert np.abs(array).max() > 0, name
        np.testing.assert_array_equal(got[name], array, err_msg=name)
    assert one.step(X, T) == other.step(X, T)
    np.testing.assert_array_equal(one.get_weights(flat=True), other.get_weights(flat=True))


def test_a_group_has_its_own_rate():
    """Adam's first step is the rate itself, whatever the gradient."""
    trainer = grouped()
    before = {n: a.copy() for n, a in trainer.get_weights().items()}
    trainer.step(X, T)
    for name, rate in (("first", 1e-2), ("second", 0.5)):
        moved = np.abs(trainer.get_weights()[name] - before[name])
        np.testing.assert_allclose(moved, rate, rtol=1e-3)


# ---- threads


def test_threads_reach_the_session_and_the_optimizer(monkeypatch):
    assert session_options(3).intra_op_num_threads == 3
    assert session_options(None).intra_op_num_threads == 0  # onnxruntime chooses
    asked, real = [], kernels.at_most

    def at_most(threads):
        asked.append(threads)
        return real(threads)

    monkeypatch.setattr(training_step.kernels, "at_most", at_most)
    trainer = make(threads=1, accumulate=2)
    trainer.step(X[:4], T[:4])
    trainer.step(X[:4], T[:4])
    assert asked == [1, 1, 1]  # to add, to add, to apply
    assert trainer._step.session.session.get_session_options().intra_op_num_threads == 1


def test_a_batch_has_32_rows_where_nobody_says_another_number():
    """As the documents promise: 65 rows are two batches and a short one."""
    x, y = (np.concatenate([part] * 3)[:65] for part in problems.mlp().batches[0])
    trainer = Trainer(problems.mlp().model(), loss="cross_entropy")
    trainer.fit(x, y, epochs=1)
    assert trainer.steps == 3
