"""Every flag of `onnxgrad train` that is about the training gets to the Trainer, with the value that was given."""

from __future__ import annotations

import numpy as np
import pytest
from job.problem import run

from onnxgrad.errors import DataError
from onnxgrad.job import run as job
from onnxgrad.job.config import Config
from onnxgrad.train import schedules

TRAIN = ("train", "model.onnx", "--data", "d.npz", "-o", "t.onnx", "--epochs", 1)

# The flags, the keyword of the Trainer, its value with the flags, and without them.
SETTINGS = [
    (("--clip", 0.25), "clip_norm", 0.25, None),
    (("--threads", 2), "threads", 2, None),
    (("--accumulate", 3), "accumulate", 3, 1),
    (("--lr", 0.5), "lr", 0.5, 1e-3),
    (("--optimizer", "sgd"), "optimizer", "sgd", "adamw"),
    (("--seed", 9), "seed", 9, 0),
    (("--warmup", 4), "warmup", 4, 0),
    (("--freeze-bn",), "freeze_bn", True, False),
    (("--dropout", 0.25), "dropout", 0.25, None),
    (("--dropout", 0), "dropout", 0.0, None),
    (("--trainable", "head"), "trainable", "head", "all"),
    (("--trainable", "w1,w2"), "trainable", ["w1", "w2"], "all"),
    (("--untie", "w1"), "untie", "w1", ""),
    (("--tie", "all"), "tie", "all", ""),
    (("--keep-float32",), "keep_float32", True, False),
    (("--schedule", "cosine"), "schedule", schedules.Cosine(), schedules.Constant()),
    (("--schedule", "cosine", "--floor", 1e-4), "schedule", schedules.Cosine(floor=1e-4), schedules.Constant()),
]  # fmt: skip


@pytest.fixture
def given(monkeypatch):
    """The keywords that the Trainer was made with."""
    seen = {}

    def trainer(subject, **settings):
        seen.update(settings)
        raise DataError("that is all we wanted to know")

    monkeypatch.setattr(job, "Trainer", trainer)
    return seen


@pytest.mark.parametrize(
    ("flags", "keyword", "value", "default"), SETTINGS, ids=[" ".join(map(str, s[0])) for s in SETTINGS]
)  # fmt: skip
def test_a_flag_reaches_the_trainer(flags, keyword, value, default, folder, capsys, given):
    run(capsys, *TRAIN, *flags)
    assert given[keyword] == value
    given.clear()
    run(capsys, *TRAIN)
    assert given[keyword] == default


def test_a_clipped_run_is_another_run(folder, capsys):
    """The whole way, once: a norm far below that of the gradients leaves the weights where they were."""
    import onnx

    weights = {}
    for name, flags in (("free", ()), ("clipped", ("--clip", 1e-12, "--optimizer", "sgd"))):
        code, _, err = run(
            capsys, *TRAIN[:-4], "-o", f"{name}.onnx", "--epochs", 1, "--lr", 0.1, *flags
        )
        assert (code, err) == (0, "")
        model = onnx.load(f"{name}.onnx")
        weights[name] = onnx.numpy_helper.to_array(model.graph.initializer[0])
    before = onnx.numpy_helper.to_array(onnx.load("model.onnx").graph.initializer[0])
    np.testing.assert_allclose(weights["clipped"], before, atol=1e-6)
    assert np.abs(weights["free"] - before).max() > 1e-2


def test_micro_batches_of_one_process_and_of_several():
    """So that a run that goes on takes as many as it began with."""
    several = object()
    assert job.divided(Config(), None).micro_batches == 1
    assert job.divided(Config(), several).micro_batches == job.MICRO_BATCHES > 1
    for config in (Config(micro_batches=3), Config(fast_sum=True)):
        for communicator in (None, several):
            assert job.divided(config, communicator) == config
