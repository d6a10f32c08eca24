"""A quantised run that was killed and resumed has the bits, and the file, of one that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from train import problems

from onnxgrad import Trainer
from onnxgrad.errors import CheckpointError
from onnxgrad.model.quantize import Quantize
from onnxgrad.train import callbacks
from onnxgrad.train.files import checkpoint

# 9 batches to an epoch, 3 epochs, a checkpoint every 4 steps: killed amid the second epoch.
BATCHES, EPOCHS, EVERY, KILLED = 9, 3, 4, 15
SETTINGS = {
    "learned": "int8",
    "fixed": "int8,scales=fixed",
    "observed": "int8,scales=observed",
    "4 bits": "w4a8,activations=uint8",
}


class Kill(callbacks.Callback):
    """Ends the process at once, without a word to anybody."""

    def on_step_end(self, loop, logs):
        if loop.trainer.steps == KILLED:
            os.kill(os.getpid(), signal.SIGKILL)


def run(folder: Path, settings: str, *more: callbacks.Callback, resume: bool = False) -> Trainer:
    """Calibrate, train with a schedule and dropout, and write `folder`/integers.onnx."""
    problem = problems.cnn()
    x, y = (np.concatenate(parts) for parts in zip(*problem.batches[:BATCHES], strict=True))
    trainer = Trainer(
        problem.model(), "cross_entropy", lr=1e-3, schedule="cosine", dropout=0.2, seed=5,
        quantize=Quantize.parse(settings).on(x),
    )  # fmt: skip
    saved = callbacks.Checkpoint(folder / "checkpoints", every_steps=EVERY)
    trainer.fit(
        x, y, epochs=EPOCHS, batch_size=16, callbacks=[saved, *more],
        resume=folder / "checkpoints" if resume else None,
    )  # fmt: skip
    trainer.save(folder / "integers.onnx")
    return trainer


CHILD = """
import sys
from pathlib import Path
from model.quantize.test_resume import Kill, run
run(Path(sys.argv[1]), sys.argv[2], Kill())
"""


def killed(folder: Path, settings: str) -> None:
    tests = Path(__file__).resolve().parents[2]
    paths = [str(tests), str(tests.parent / "src"), os.environ.get("PYTHONPATH", "")]
    process = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), settings],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stderr=subprocess.PIPE,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_killed_run_ends_in_the_same_bits_and_the_same_file(settings, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    expected = run(whole, settings).store.tensors()
    killed(cut, settings)
    assert not (cut / "integers.onnx").exists()
    got = run(cut, settings, resume=True).store.tensors()
    assert {n: a.tobytes() for n, a in got.items()} == {n: a.tobytes() for n, a in expected.items()}
    assert (cut / "integers.onnx").read_bytes() == (whole / "integers.onnx").read_bytes()


def newest(folder: Path):
    return checkpoint.read(checkpoint.checkpoints(folder / "checkpoints")[0])


def test_a_checkpoint_holds_what_was_learned_of_the_scales(tmp_path):
    trainer = run(tmp_path, SETTINGS["learned"])
    kept, now = newest(tmp_path), trainer.get_weights()
    scales = [n for n in now if n.endswith(".log_scale")]
    assert scales
    for name in scales:
        assert kept.weights[name].shape == now[name].shape
        assert any(key.endswith(f"/{name}") for key in kept.optimizer_state)


def test_a_checkpoint_holds_observers_and_zero_points(tmp_path):
    trainer = run(tmp_path, SETTINGS["observed"])
    kept, now = newest(tmp_path).weights, trainer.get_weights()
    ranges = [n for n in now if n.endswith((".low", ".high"))]
    assert len(ranges) > 6
    for name in ranges:  # fixed since the first epoch
        np.testing.assert_array_equal(kept[name], now[name])
    for settings in ("learned", "fixed"):
        run(tmp_path / settings, SETTINGS[settings])
        assert any(n.endswith("_scale/zero") for n in newest(tmp_path / settings).weights)


def test_observers_follow_the_first_epoch_and_stay(tmp_path):
    problem = problems.cnn()
    x, y = problem.batches[0]
    how = Quantize("int8", scales="observed", data=x)
    trainer = Trainer(problem.model(), "cross_entropy", lr=1e-2, quantize=how)
    ranges = {n: a.copy() for n, a in trainer.get_weights().items() if n.endswith(".high")}
    trainer.step(x, y)
    seen = {n: trainer.get_weights()[n].copy() for n in ranges}
    assert sum(not np.array_equal(seen[n], a) for n, a in ranges.items()) > len(ranges) // 2
    trainer.begin_epoch(1)
    trainer.step(*problem.batches[1])
    for name, array in seen.items():
        np.testing.assert_array_equal(trainer.get_weights()[name], array)


def test_other_settings_do_not_go_on_from_a_checkpoint(tmp_path):
    run(tmp_path, SETTINGS["learned"])
    with pytest.raises(CheckpointError, match=r"another model|lacks|also trains"):
        run(tmp_path, SETTINGS["observed"], resume=True)
