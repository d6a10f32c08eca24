"""What a user names for training takes its numbers up to their limits, and not one step further."""

from __future__ import annotations

import itertools

import onnx
import pytest

from onnxgrad import Trainer
from onnxgrad.train import callbacks, losses, metrics, optimizers, schedules
from onnxgrad.train.optimizers import SGD, Adam, AdamW

NET = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[N, 2] x) => (float[N, 3] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}> { y = MatMul(x, w) }"""


def trainer(loss, **more) -> Trainer:
    return Trainer(onnx.parser.parse_model(NET), loss=loss, **more)


# ---- numbers: the least and the largest that are taken, and those beyond

TAKEN = [
    *itertools.product((SGD, Adam, AdamW), [{"lr": 0.0}, {"weight_decay": 0.0}]),
    *itertools.product((Adam, AdamW), [{"eps": 0.0}, {"betas": (0.0, 0.0)}, {"betas": (0.999999, 0.5)}]),
    (SGD, {"momentum": 0.0}), (SGD, {"momentum": 0.5, "nesterov": True}),
    (schedules.Step, {"every": 1}), (schedules.Step, {"gamma": 0.0}), (schedules.Exponential, {"gamma": 1.5}),
    (schedules.Warmup, {"steps": 0}), (schedules.ReduceOnPlateau, {"factor": 0.0, "patience": 0, "mode": "max"}),
    (losses.CrossEntropy, {"label_smoothing": 0.0}), (losses.CrossEntropy, {"label_smoothing": 1.0}),
    (losses.Huber, {"delta": 1e-9}),
    (callbacks.Checkpoint, {"folder": "c", "save_total_limit": 1}),
]  # fmt: skip
NOT_NEGATIVE = "expected a number >= 0"
REFUSED = [
    *((kind, {name: -1e-9}, f"{kind.__name__}: {name} is -1e-09, {NOT_NEGATIVE}")
      for kind in (SGD, Adam, AdamW) for name in ("lr", "weight_decay")),
    *((kind, {"eps": -1.0}, f"{kind.__name__}: eps is -1.0, {NOT_NEGATIVE}") for kind in (Adam, AdamW)),
    *((kind, {"betas": betas}, f"{kind.__name__}: betas is {betas}, expected two numbers in [0, 1)")
      for kind in (Adam, AdamW) for betas in ((1.0, 0.5), (0.5, 1.0), (-0.1, 0.5), (0.5, -0.1))),
    (SGD, {"momentum": -0.1}, f"SGD: momentum is -0.1, {NOT_NEGATIVE}"),
    (SGD, {"nesterov": True}, "SGD: nesterov is True, expected momentum > 0 and dampening = 0"),
    (SGD, {"nesterov": True, "momentum": 0.5, "dampening": 0.1}, "SGD: nesterov is True, expected momentum > 0"),
    (schedules.Step, {"every": 0}, "Step: every is 0, expected at least 1 epoch"),
    *((kind, {"gamma": gamma}, f"{kind.__name__}: gamma is {gamma}, {NOT_NEGATIVE}")
      for kind in (schedules.Step, schedules.Exponential) for gamma in (-0.1, float("nan"), float("inf"))),
    (schedules.Warmup, {"steps": -1}, "Warmup: steps is -1, expected at least 0"),
    (schedules.ReduceOnPlateau, {"factor": 1.0}, "ReduceOnPlateau: factor is 1.0, expected at least 0 and below 1"),
    (schedules.ReduceOnPlateau, {"patience": -1}, "ReduceOnPlateau: patience is -1, expected at least 0 epochs"),
    (schedules.ReduceOnPlateau, {"mode": "best"}, "ReduceOnPlateau: mode is 'best', expected min or max"),
    (losses.CrossEntropy, {"label_smoothing": -0.1}, "CrossEntropy: label_smoothing is -0.1, expected 0 to 1"),
    (losses.CrossEntropy, {"label_smoothing": 1.1}, "CrossEntropy: label_smoothing is 1.1, expected 0 to 1"),
    (losses.Huber, {"delta": 0.0}, "Huber: delta is 0.0, expected a number > 0"),
    *((kind, {"reduction": "none"}, f"{kind.__name__}: reduction is 'none', expected mean or sum")
      for kind in (losses.CrossEntropy, losses.BinaryCrossEntropy, losses.MSE, losses.L1, losses.Huber)),
    (callbacks.Checkpoint, {"folder": "c", "save_total_limit": 0}, "save_total_limit is 0, expected at least 1"),
    (callbacks.EarlyStopping, {"mode": "least"}, "mode is 'least', expected auto, min or max"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "settings"), TAKEN, ids=[f"{k.__name__} {s}" for k, s in TAKEN])
def test_taken(kind, settings):
    kind(**settings)


@pytest.mark.parametrize(("kind", "settings", "said"), REFUSED, ids=[r[2] for r in REFUSED])
def test_refused(kind, settings, said):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        kind(**settings)
    assert str(caught.value).startswith(said)


# ---- names, and things in their place

NAMED = [
    (lambda: optimizers.resolve("nothing", None), "optimizer is 'nothing', expected one of "),
    (lambda: optimizers.resolve(3, None), "optimizer is a int, expected a name or an optimizer"),
    (lambda: optimizers.resolve("sgd", None, betas=(0.1, 0.2)), "SGD has no setting 'betas'; it has lr, momentum"),
    (lambda: schedules.resolve("nothing"), "schedule is 'nothing', expected one of "),
    (lambda: schedules.resolve(3), "schedule is a int, expected a name or a schedule"),
    (lambda: metrics.resolve("nothing"), "metric is 'nothing', expected one of "),
    (lambda: metrics.resolve([3]), "metric is a int, expected a name or a function"),
    (lambda: trainer("nothing"), "loss is 'nothing', expected one of "),
    (lambda: trainer(3), "loss is a int, expected a name, a loss, a function or a model"),
    (lambda: trainer("mse", metrics="accuracy"), "the metric 'accuracy' counts right answers, and the loss of output"),
    (lambda: trainer("mse", metrics="z=mae"), "the metric 'z_mae' is of output 'z', and those with a loss are"),
    (lambda: trainer(losses.CrossEntropy(weight=(1, 2))), "CrossEntropy: weight has 2 numbers, expected 3, one per"),
    (lambda: trainer(losses.CrossEntropy(axis=2)), "CrossEntropy: axis is 2, expected 1 to 1"),
    (lambda: trainer(losses.CrossEntropy(axis=0)), "CrossEntropy: axis is 0, expected 1 to 1"),
    (lambda: trainer(losses.CrossEntropy(axis=-2)), "CrossEntropy: axis is -2, expected 1 to 1"),
    (lambda: trainer(lambda op, y, t: 3.0), "<lambda> returned a float, expected a value of the graph"),
    (lambda: trainer("mse", clip_norm=0.0), "clip_norm is 0.0, expected a number > 0"),
    (lambda: trainer("mse", clip_value=-1.0), "clip_value is -1.0, expected a number > 0"),
    (lambda: trainer("mse", accumulate=0), "accumulate is 0, expected at least 1"),
    (lambda: trainer("mse", dropout=1.0), "dropout is 1.0, expected 0 <= rate < 1"),
    (lambda: trainer({"z": "mse"}), "loss names the output 'z'; the outputs are 'y'"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "said"), NAMED, ids=[n[1] for n in NAMED])
def test_names_that_mean_nothing(make, said):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        make()
    assert str(caught.value).startswith(said)


def test_names_in_any_case_and_things_as_they_are():
    assert isinstance(optimizers.resolve("AdamW", None), AdamW)
    assert optimizers.resolve("sgd", 0.5) == SGD(lr=0.5)
    own = SGD(lr=0.3)
    assert optimizers.resolve(own, None) == own
    assert schedules.resolve("COSINE") == schedules.Cosine()
    assert (
        trainer(losses.CrossEntropy(axis=-1), accumulate=1, clip_norm=1e-9, dropout=0.0).steps == 0
    )
