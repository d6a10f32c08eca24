"""Against what onnxruntime-training-cpu 1.19.2 did with the same models, files and batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from dropin import nets
from dropin.goldens import GOLDEN, RATES, batches, expected, flat, frozen, program, train

from onnxgrad.api import CheckpointState, Module
from onnxgrad.dropin.old import checkpoint

TOLERANCE = 1e-4

every_run = pytest.mark.parametrize("optimizer", RATES)
every_net = pytest.mark.parametrize("name", nets.NETS)


@every_run
@every_net
def test_a_program_runs_with_one_word_changed(name, optimizer, tmp_path):
    main = program()["main"]
    folder = GOLDEN / name
    rate = str(RATES[optimizer])
    main(folder / "model.onnx", folder / "batches.npz", tmp_path, nets.LOSSES[name], optimizer,
         rate, "yes", frozen(name))  # fmt: skip
    losses, old = np.load(tmp_path / "losses.npy"), expected(name, optimizer)
    assert len(losses) == 101
    assert old[-1] < 0.97 * old[:4].max()  # it learnt something, so that equality means something
    np.testing.assert_allclose(losses[: len(old)], old, rtol=0, atol=TOLERANCE)
    compare_parameters(tmp_path / "checkpoint_end", folder / optimizer / "checkpoint_end")


def compare_parameters(ours: Path, old: Path) -> None:
    a, b = checkpoint.read(ours), checkpoint.read(old)
    assert sorted(a.trainable) == sorted(b.trainable)
    assert sorted(a.frozen) == sorted(b.frozen)
    for name in b.trainable:
        np.testing.assert_allclose(a.trainable[name], b.trainable[name], rtol=0, atol=TOLERANCE)
    for name in b.frozen:  # running statistics
        np.testing.assert_allclose(a.frozen[name], b.frozen[name], rtol=0, atol=TOLERANCE)


@every_net
def test_the_exported_model_is_the_trained_one(name, tmp_path):
    main, folder = program()["main"], GOLDEN / name
    main(folder / "model.onnx", folder / "batches.npz", tmp_path, nets.LOSSES[name], "SGD", "0.02",
         "yes", frozen(name))  # fmt: skip
    exported = onnx.load(tmp_path / "inference.onnx")
    assert [v.name for v in exported.graph.input] == ["input"]
    assert [v.name for v in exported.graph.output] == ["output"]
    assert {o.domain for o in exported.opset_import} == {""}
    session = onnxruntime.InferenceSession(tmp_path / "inference.onnx")
    x, y = batches(name)[0]
    prediction = session.run(None, {"input": x})[0]
    loss = np.load(tmp_path / "losses.npy")[-1]
    np.testing.assert_allclose(loss_of(nets.LOSSES[name], prediction, y), loss, rtol=1e-5)


def loss_of(kind: str, prediction: np.ndarray, target: np.ndarray) -> float:
    if kind == "MSELoss":
        return float(np.mean((prediction - target) ** 2))
    shifted = prediction - prediction.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return float(-log_p[np.arange(len(target)), target].mean())


@every_run
@every_net
def test_old_artifacts_train_with_the_old_losses(name, optimizer, tmp_path):
    losses, state = train(name, optimizer, "checkpoint", range(100))
    np.testing.assert_allclose(losses, expected(name, optimizer)[:100], rtol=0, atol=TOLERANCE)
    CheckpointState.save_checkpoint(state, tmp_path / "end")
    compare_parameters(tmp_path / "end", GOLDEN / name / optimizer / "checkpoint_end")


@every_run
@every_net
def test_old_checkpoints_continue_with_the_old_losses(name, optimizer):
    start = f"{optimizer}/checkpoint_half"
    losses, state = train(name, optimizer, start, range(50, 100))
    np.testing.assert_allclose(losses, expected(name, optimizer)[50:100], rtol=0, atol=TOLERANCE)
    assert dict(state.properties) == {"step": 50}


@every_net
def test_old_eval_models_give_the_old_loss(name):
    folder = GOLDEN / name
    state = CheckpointState.load_checkpoint(folder / "SGD" / "checkpoint_end")
    module = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx").eval()
    loss = module(*batches(name)[0])
    old = expected(name, "SGD")
    if len(old) == 101:
        np.testing.assert_allclose(loss, old[100], rtol=0, atol=TOLERANCE)
    else:  # the old package cannot load this one at all
        assert name == "cnn"
        assert np.isfinite(loss)


@every_run
@every_net
def test_checkpoints_are_written_as_the_old_package_writes_them(name, optimizer, tmp_path):
    for file in ("checkpoint", f"{optimizer}/checkpoint_half", f"{optimizer}/checkpoint_end"):
        old = checkpoint.read(GOLDEN / name / file)
        checkpoint.write(old, tmp_path / "again")
        new = checkpoint.read(tmp_path / "again")
        assert flat(new) == flat(old)
