"""TrainState: the only thing that trainer, loop and checkpoints share."""

from __future__ import annotations

import ast
import inspect
import json

import numpy as np
import onnx
import pytest

import onnxgrad
from onnxgrad.data.arrays import ArrayData, Batch, Data
from onnxgrad.errors import DivergedError
from onnxgrad.train.files import checkpoint
from onnxgrad.train.state import Progress, TrainState
from onnxgrad.train.step.not_finite import NotFinite

LINE = """
    <ir_version: 8, opset_import: ["" : 17]>
    line (float[N, 2] x) => (float[N, 1] y)
    <float[2, 1] w = {1, -1}, float[1] b = {0.5}> { p = MatMul(x, w)  y = Add(p, b) }
"""
X = np.random.default_rng(0).normal(size=(24, 2)).astype(np.float32)
Y = (X @ [[2.0], [1.0]] - 1).astype(np.float32)


def trainer(**settings) -> onnxgrad.Trainer:
    made = {"loss": "mse", "optimizer": "adamw", "lr": 0.05, **settings}
    return onnxgrad.Trainer(onnx.parser.parse_model(LINE), **made)


def copied(state: TrainState) -> TrainState:
    """The state as another process would get it: numbers, no shared memory."""
    weights = {n: a.copy() for n, a in state.weights.items()}
    moments = {n: a.copy() for n, a in state.optimizer_state.items()}
    return TrainState(**{**vars(state), "weights": weights, "optimizer_state": moments})


def test_a_state_moves_from_one_trainer_to_another_to_the_same_bits():
    first, second = trainer(), trainer()
    for start in range(0, 16, 8):
        first.step(X[start : start + 8], Y[start : start + 8])
    second.load_state(copied(first.state()))
    logs = [t.step(X[16:], Y[16:]) for t in (first, second)]
    assert logs[0] == logs[1]
    assert second.steps == 3
    np.testing.assert_array_equal(first.get_weights(flat=True), second.get_weights(flat=True))


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (dict(seed=1), "its seed is 1, not 0"),
        (dict(optimizer="sgd"), "its optimizer is SGD, not AdamW"),
        (dict(trainable="w"), "it lacks 'b'; were `trainable` or settings changed?"),
    ],
    ids=["seed", "optimizer", "weights"],
)
def test_a_state_of_another_training_is_refused(other, reason):
    mine, before = trainer(), trainer().get_weights(flat=True)
    with pytest.raises(ValueError, match="cannot continue from this state") as error:
        mine.load_state(trainer(**other).state())
    assert str(error.value).endswith(reason)
    np.testing.assert_array_equal(mine.get_weights(flat=True), before)


def test_checkpoints_read_and_write_states_and_know_no_trainer(tmp_path):
    names = {
        getattr(node, "id", getattr(node, "attr", ""))
        for node in ast.walk(ast.parse(inspect.getsource(checkpoint)))
        if isinstance(node, (ast.Name, ast.Attribute))
    }
    assert not names & {"Trainer", "trainer", "EpochLoop", "loop", "Buffers"}
    state = trainer().state()
    checkpoint.save(state, tmp_path / "c")
    again = checkpoint.read(tmp_path / "c")
    assert again.mismatch(state) == ""
    assert (again.step, again.progress, again.extra) == (0, None, {})


def test_what_a_caller_adds_to_a_checkpoint_cannot_replace_what_it_is(tmp_path):
    trainer().save_checkpoint(tmp_path / "c", note="of mine", files={}, step=77)
    written = json.loads((tmp_path / "c" / "trainer_state.json").read_text())
    assert written["step"] == 0
    assert set(written["files"]) == {"model.safetensors", "optimizer.safetensors"}
    assert trainer().load_checkpoint(tmp_path / "c")["note"] == "of mine"


def test_data_has_a_name():
    class Own:
        def epoch(self, epoch, start=0):
            for number in range(start, 3):
                rows = slice(8 * number, 8 * number + 8)
                yield Batch({"x": X[rows], "target": Y[rows]}, number)

    assert isinstance(Own(), Data)
    assert isinstance(ArrayData({"x": X}, 4, False, 0), Data)
    assert trainer().fit(Own(), epochs=2).epochs[-1]["step"] == 6


def test_a_step_that_is_not_finite_is_an_exception_that_changes_nothing():
    mine = trainer()
    before = mine.get_weights(flat=True)
    with pytest.raises(DivergedError, match="step 1: loss is not finite"):
        mine.step(X[:4] * np.float32(1e30), Y[:4])
    np.testing.assert_array_equal(mine.get_weights(flat=True), before)
    assert issubclass(NotFinite, Exception)
    assert mine.steps == 0


def other(**changed) -> TrainState:
    return TrainState(**{
        "model": "m", "seed": 1, "optimizer": "AdamW", "weights": {"w": np.zeros((2, 1), np.float32)},
        "optimizer_state": {"m/w": np.zeros(2, np.float32)}, **changed,
    })  # fmt: skip


MISMATCHES = [
    ({}, ""),
    ({"step": 7, "batches": 9, "extra": {"best": 1}}, ""),
    ({"model": "n"}, "it is a checkpoint of another model"),
    ({"seed": 2}, "its seed is 2, not 1"),
    ({"optimizer": "SGD"}, "its optimizer is SGD, not AdamW"),
    ({"weights": {}}, "it lacks 'w'; were `trainable` or settings changed?"),
    (
        {"weights": {"w": np.zeros((2, 1), np.float32), "v": np.zeros(1)}},
        "it also trains 'v'; were `trainable` or",
    ),
    (
        {"weights": {"w": np.zeros((1, 2), np.float32)}},
        "'w' is float32 [1, 2], expected float32 [2, 1]",
    ),
    ({"weights": {"w": np.zeros((2, 1))}}, "'w' is float64 [2, 1], expected float32 [2, 1]"),
    ({"optimizer_state": {}}, "it lacks 'optimizer/m/w'; were"),
    (
        {"optimizer_state": {"m/w": np.zeros(3, np.float32)}},
        "'optimizer/m/w' is float32 [3], expected float32 [2]",
    ),
]


@pytest.mark.parametrize(
    ("changed", "said"), MISMATCHES, ids=[m[1] or str(m[0]) for m in MISMATCHES]
)
def test_why_a_trainer_cannot_go_on(changed, said):
    found = other(**changed).mismatch(other())
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_a_progress_counts_rows_and_the_sum_of_their_losses():
    progress = Progress()
    progress.count(0.5, 8)
    progress.count(2.0, 4)
    assert (progress.position, progress.rows, progress.loss_sum) == (2, 12, 12.0)
    progress.end_epoch({"loss": 1.0})
    assert (progress.epoch, progress.position, progress.rows, progress.loss_sum) == (1, 0, 0, 0.0)
    assert progress.as_dict()["epochs"] == [{"loss": 1.0}]
