"""Optimizers, schedules, losses and whole runs against what PyTorch 2.13 computed (tests/golden/train)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from train import problems

from onnxgrad import Trainer
from onnxgrad.train import losses, optimizers, schedules

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "train"


def golden(table: str):
    return np.load(FOLDER / f"{table}.npz")


def assert_close(got: np.ndarray, expected: np.ndarray, rtol: float) -> None:
    """Relative to the largest number: an element near 0 has no digits of its own."""
    np.testing.assert_allclose(got, expected, rtol=0, atol=rtol * np.abs(expected).max())


# ---- optimizers


def quadratic(dtype: np.dtype):
    """Σ ½p² + p·x over parameters p and inputs x of their shapes: the gradient of p is p + x."""
    parameters, noise = problems.optimizer_problem()
    kind = TensorProto.FLOAT if dtype == np.float32 else TensorProto.DOUBLE
    nodes, weights, inputs = [], {"half": np.array(0.5, dtype)}, []
    for i, p in enumerate(parameters):
        weights[f"p{i}"] = p.astype(dtype)
        inputs.append((f"x{i}", kind, p.shape))
        nodes += [
            helper.make_node("Mul", [f"p{i}", "half"], [f"h{i}"]),
            helper.make_node("Add", [f"h{i}", f"x{i}"], [f"a{i}"]),
            helper.make_node("Mul", [f"p{i}", f"a{i}"], [f"m{i}"]),
            helper.make_node("ReduceSum", [f"m{i}"], [f"s{i}"], keepdims=0),
        ]
    nodes.append(helper.make_node("Sum", [f"s{i}" for i in range(len(parameters))], ["loss"]))
    model = problems.make_model(nodes, inputs, [("loss", kind, [])], weights)
    batches = []
    for row in noise.astype(dtype):
        parts = np.split(row, np.cumsum([p.size for p in parameters])[:-1])
        named = zip(parts, parameters, strict=True)
        batches.append({f"x{i}": a.reshape(p.shape) for i, (a, p) in enumerate(named)})
    return model, batches


SETTINGS = {**{k: (*v, {}) for k, v in problems.OPTIMIZERS.items()}, **problems.CLIPPED}


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float", "double"])
@pytest.mark.parametrize("title", SETTINGS)
def test_optimizers_equal_torch_over_100_steps(title, dtype):
    kind, options, clip = SETTINGS[title]
    model, batches = quadratic(dtype)
    trainer = Trainer(model, optimizer=getattr(optimizers, kind)(**options), **clip)
    recorded = golden("optimizers")
    for step, batch in enumerate(batches, 1):
        trainer.step(batch)
        if step in (1, 10, 100):
            expected = recorded[f"{title}/{step}/{np.dtype(dtype)}"]
            rtol = 1e-6 if dtype == np.float32 else 1e-12
            assert_close(trainer.get_weights(flat=True), expected, rtol)


def test_groups_have_their_own_settings():
    """p1 without decay and at half the rate: as two optimizers, each for its own parameters."""
    model, batches = quadratic(np.float64)
    optimizer = optimizers.AdamW(lr=0.02, weight_decay=0.3)
    groups = [{"params": "p1", "lr": 0.01, "weight_decay": 0.0}]
    together = Trainer(model, optimizer=optimizer, groups=groups)
    alone = Trainer(model, optimizer=optimizers.AdamW(lr=0.01, weight_decay=0.0), trainable="p1")
    rest = Trainer(model, optimizer=optimizer, trainable=["p0", "p2", "p3"])
    for batch in batches[:20]:
        for trainer in (together, alone, rest):
            trainer.step(batch)
    expected = {**rest.get_weights(), **alone.get_weights()}
    for name, array in together.get_weights().items():
        np.testing.assert_array_equal(array, expected[name])


def test_accumulated_gradients_are_their_mean():
    model, batches = quadratic(np.float64)
    four = Trainer(model, optimizer="adamw", lr=0.1, accumulate=4)
    one = Trainer(model, optimizer="adamw", lr=0.1)
    for start in range(0, 40, 4):
        part = batches[start : start + 4]
        for batch in part:
            four.step(batch)
        one.step({name: np.mean([b[name] for b in part], axis=0) for name in part[0]})
    assert four.steps == one.steps == 10
    assert_close(four.get_weights(flat=True), one.get_weights(flat=True), 1e-13)


# ---- schedules

OURS = {
    "cosine": schedules.Cosine(total=100, floor=1e-3),
    "linear": schedules.Linear(total=80, end=0.1),
    "step": schedules.Step(every=30, gamma=0.3, per_epoch=1),
    "exponential": schedules.Exponential(gamma=0.97, per_epoch=1),
    "warm-up": schedules.Warmup(steps=20, start=0.25),
    "constant": schedules.Constant(),
}


@pytest.mark.parametrize("title", problems.SCHEDULES)
def test_schedules_equal_torch(title):
    rates = [OURS[title].rate(0.5, step) for step in range(100)]
    np.testing.assert_allclose(rates, golden("schedules")[title], rtol=1e-6)


@pytest.mark.parametrize("title", problems.PLATEAUS)
def test_reduction_on_plateaus_equals_torch(title):
    schedule = schedules.ReduceOnPlateau(**problems.PLATEAUS[title])
    rates = []
    for value in problems.plateau_values():
        rates.append(schedule.rate(0.5, 0))
        schedule.observe(float(value))
    np.testing.assert_allclose(rates, golden("schedules")[title], rtol=1e-6)


# ---- losses


@pytest.mark.parametrize("title", problems.LOSSES)
def test_losses_and_gradients_equal_torch(title):
    """The model is the one parameter `x`, so that its gradient is that of the output."""
    kind, options = problems.LOSSES[title]
    x, y = problems.loss_problem(title)
    nodes = [helper.make_node("Add", ["x", "zero"], ["output"])]
    inputs = [("zero", TensorProto.FLOAT, [])]
    model = problems.make_model(nodes, inputs, [("output", TensorProto.FLOAT, x.shape)], {"x": x})
    trainer = Trainer(model, loss=getattr(losses, kind)(**options), optimizer="sgd", lr=0.0)
    logs = trainer.step({"zero": np.float32(0), "target": y})
    recorded = golden("losses")
    np.testing.assert_allclose(logs["loss"], recorded[f"{title}/loss"], rtol=1e-6)
    assert_close(trainer.store.gradient("x"), recorded[f"{title}/gradient"], 1e-6)


# ---- whole runs


@pytest.mark.parametrize("name", problems.PROBLEMS)
def test_loss_curves_equal_torch_over_50_steps(name):
    problem = problems.PROBLEMS[name]()
    trainer = Trainer(
        problem.model(), loss="cross_entropy", optimizer=problem.optimizer, lr=problem.lr
    )
    curve = [trainer.step(x, y)["loss"] for x, y in problem.batches]
    np.testing.assert_allclose(curve, golden("curves")[name], rtol=1e-4)
    assert curve[-1] < curve[0]
