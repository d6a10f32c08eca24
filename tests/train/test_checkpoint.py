"""Checkpoints: whole or not there, refused when damaged, and a resumed run has the bits of one that was not cut."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from train import problems

from onnxgrad import Trainer
from onnxgrad.errors import CheckpointError
from onnxgrad.train import callbacks, optimizers, schedules
from onnxgrad.train.files import checkpoint

KILLS = int(os.environ.get("ONNXGRAD_KILLS", "3"))


def make(**settings) -> tuple[Trainer, tuple[np.ndarray, np.ndarray]]:
    problem = problems.cnn()
    settings.setdefault("dropout", 0.2)
    trainer = Trainer(
        problem.model(), loss="cross_entropy", lr=1e-2, metrics="accuracy", seed=7, **settings
    )
    x, y = (np.concatenate(parts) for parts in zip(*problem.batches[:12], strict=True))
    return trainer, (x, y)


def run(folder: Path, *more: callbacks.Callback, resume: bool = False):
    """A run with everything that has a state: schedule, early stopping, accumulation, dropout."""
    trainer, (x, y) = make(schedule="cosine", warmup=5, clip_norm=1.0, accumulate=2)
    watch = [
        callbacks.EarlyStopping(patience=50),
        callbacks.Checkpoint(folder, every_steps=3, monitor="val_loss"),
        callbacks.CSVLogger(folder / "results.csv"),
        *more,
    ]
    history = trainer.fit(
        x, y, validation=0.25, epochs=4, batch_size=16, callbacks=watch,
        resume=folder if resume else None,
    )  # fmt: skip
    return trainer, history


def bits(trainer: Trainer) -> bytes:
    return b"".join(a.tobytes() for a in trainer.store.tensors().values())


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    trainer, history = run(folder)
    return bits(trainer), history.epochs, (folder / "results.csv").read_text()


class Cut(callbacks.Callback):
    """Ends a run after some batches, as if the process had gone."""

    def __init__(self, batches: int):
        self.left = batches

    def on_step_end(self, loop, logs):
        self.left -= 1
        if self.left == 0:
            loop.stop = "cut"


@pytest.mark.parametrize("batches", [6, 7, 9, 20, 35])
def test_a_resumed_run_ends_in_the_same_bits(batches, tmp_path, uninterrupted):
    run(tmp_path, Cut(batches))
    trainer, history = run(tmp_path, resume=True)
    assert history.epochs == uninterrupted[1]
    assert bits(trainer) == uninterrupted[0]
    assert (tmp_path / "results.csv").read_text() == uninterrupted[2]


def test_the_same_seed_gives_the_same_bits(tmp_path, uninterrupted):
    trainer, history = run(tmp_path)
    assert (bits(trainer), history.epochs) == uninterrupted[:2]


CHILD = """
import sys
from pathlib import Path
from train.test_checkpoint import run, bits
folder = Path(sys.argv[1])
trainer, history = run(folder, resume=sys.argv[2] == "resume")
Path(sys.argv[3]).write_bytes(bits(trainer))
"""


def child(folder: Path, result: Path, mode: str) -> subprocess.Popen:
    tests = Path(__file__).resolve().parents[1]
    paths = [str(tests), str(tests.parent / "src"), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), mode, str(result)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("kill", range(KILLS))
def test_killed_at_a_random_moment(kill, tmp_path, uninterrupted):
    """Killed between the first checkpoint and the end, perhaps while it writes one."""
    result = tmp_path / "result"
    process = child(tmp_path, result, "begin")
    wait_for(lambda: checkpoint.checkpoints(tmp_path) or process.poll() is not None)
    time.sleep(random.Random(kill).uniform(0, 0.3))
    process.send_signal(signal.SIGKILL)
    process.wait()
    for found in checkpoint.checkpoints(tmp_path):
        checkpoint.read(found)  # what has its final name is whole
    if not result.exists():
        resumed = child(tmp_path, result, "resume")
        assert resumed.wait() == 0, resumed.stderr.read().decode()
        assert not list(tmp_path.glob(".unfinished*"))
    assert result.read_bytes() == uninterrupted[0]
    assert (tmp_path / "results.csv").read_text() == uninterrupted[2]


def test_ctrl_c_saves_a_checkpoint(tmp_path, uninterrupted):
    """Amid the run: it ends by KeyboardInterrupt after the step at hand, and is resumed to the same bits."""
    result = tmp_path / "result"
    process = child(tmp_path, result, "begin")
    wait_for(lambda: checkpoint.checkpoints(tmp_path) or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    errors = process.communicate()[1].decode()
    if not result.exists():
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert child(tmp_path, result, "resume").wait() == 0
    assert result.read_bytes() == uninterrupted[0]


def wait_for(condition, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.002)


# ---- damage


@pytest.fixture
def folder(tmp_path):
    """A folder with the checkpoints of steps 1 and 2."""
    trainer, (x, y) = make()
    for step in (1, 2):
        trainer.step(x[:16], y[:16])
        trainer.save_checkpoint(tmp_path / f"step-{step:08d}")
    return tmp_path


def damage(kind: str, newest: Path) -> None:
    weights, state = newest / "model.safetensors", newest / "trainer_state.json"
    if kind == "cut off":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif kind == "one bit":
        data = bytearray(weights.read_bytes())
        data[-5] ^= 1
        weights.write_bytes(data)
    elif kind == "a file is missing":
        (newest / "optimizer.safetensors").unlink()
    elif kind == "no state":
        state.unlink()
    elif kind == "state cut off":
        state.write_text(state.read_text()[:50])
    elif kind == "newer format":
        state.write_text(json.dumps({**json.loads(state.read_text()), "format": 99}))


DAMAGE = {
    "cut off": "model.safetensors is damaged or cut off, its hash differs",
    "one bit": "model.safetensors is damaged or cut off, its hash differs",
    "a file is missing": "optimizer.safetensors is missing",
    "no state": "not a checkpoint: trainer_state.json is missing",
    "state cut off": "trainer_state.json is damaged or foreign",
    "newer format": "its format is 99, this onnxgrad reads up to 2",
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_refused_and_the_one_before_loads(kind, folder):
    newest = folder / "step-00000002"
    damage(kind, newest)
    trainer, _ = make()
    before = bits(trainer)
    with pytest.raises(CheckpointError) as caught:
        trainer.load_checkpoint(newest)
    assert str(caught.value).startswith(f"{newest}: {DAMAGE[kind]}")
    assert bits(trainer) == before
    state = trainer.load_checkpoint(folder)
    assert state["step"] == trainer.steps == 1
    assert state["refused"] == [str(caught.value)]


STRANGE = [("step", float("nan")), ("step", "1"), ("step", -1), ("step", 1 << 63), ("batches", 1.0), ("seed", False),
           ("schedule", []), ("callbacks", 0), ("recipe", "x"), ("model", 7), ("optimizer", None), ("progress", 3),
           ("files", "x"), ("progress", {"epoch": 0.5}), ("progress", {"epochs": {}}),
           ("progress", {"loss_sum": "0"})]  # fmt: skip


def test_a_state_of_strange_values_with_a_right_hash_is_refused(folder):
    newest = folder / "step-00000002"
    good = json.loads((newest / "trainer_state.json").read_text())
    good.pop("sha256")
    trainer, _ = make()
    before = bits(trainer)
    for name, value in STRANGE:
        state = {**good, name: value}
        digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
        (newest / "trainer_state.json").write_text(json.dumps({**state, "sha256": digest}))
        with pytest.raises(CheckpointError, match=r"trainer_state\.json is damaged or foreign"):
            print(trainer.load_checkpoint(newest), name, value)
        assert bits(trainer) == before
    assert trainer.load_checkpoint(folder)["step"] == 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (dict(optimizer="sgd"), "its optimizer is AdamW, not SGD"),
        (dict(trainable="head"), "it also trains 'conv1'; were `trainable` or settings changed?"),
    ],
)
def test_a_checkpoint_of_other_settings_is_refused(settings, reason, folder):
    trainer, _ = make(**settings)
    with pytest.raises(CheckpointError) as caught:
        trainer.load_checkpoint(folder / "step-00000002")
    assert str(caught.value) == f"{folder / 'step-00000002'}: {reason}"


def test_a_checkpoint_of_another_model_is_refused(folder):
    problem = problems.mlp()
    trainer = Trainer(problem.model(), loss="cross_entropy")
    with pytest.raises(CheckpointError, match="it is a checkpoint of another model"):
        trainer.load_checkpoint(folder)


def test_nothing_there():
    trainer, _ = make()
    with pytest.raises(CheckpointError, match="does not exist"):
        trainer.load_checkpoint("nowhere")


def test_old_checkpoints_are_removed(tmp_path):
    trainer, (x, y) = make()
    watch = callbacks.Checkpoint(tmp_path, every_steps=1, save_total_limit=2)
    trainer.fit(x, y, epochs=1, callbacks=[watch], max_steps=5)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000004", "step-00000005"]


def test_every_so_many_steps(tmp_path):
    trainer, (x, y) = make()
    watch = callbacks.Checkpoint(tmp_path, every_steps=2, save_total_limit=9)
    trainer.fit(x, y, epochs=2, batch_size=8, callbacks=[watch], max_steps=7)
    saved = {int(p.name.removeprefix("step-")) for p in tmp_path.iterdir()}
    ends = {len(range(0, len(x), 8)), 7}  # of the first epoch, and of the training
    assert {2, 4, 6} <= saved <= {2, 4, 6} | ends


def test_checkpoints_of_other_runs_stay(tmp_path):
    """A resumed run counts its own from before; another run in the same folder loses nothing."""
    for other in ("step-00000001", "step-00009999", "step-my notes", ".unfinished-mine"):
        (tmp_path / other).mkdir()
        (tmp_path / other / "trainer_state.json").write_text("{}")
    theirs = {p.name for p in tmp_path.iterdir()} - {"step-00000001"}  # a name that this run writes
    for steps, resume in ((4, None), (8, tmp_path / "step-00000004")):
        trainer, (x, y) = make()
        watch = callbacks.Checkpoint(tmp_path, every_steps=1, save_total_limit=2)
        trainer.fit(x, y, epochs=2, callbacks=[watch], max_steps=steps, resume=resume)
        own = {f"step-{steps - 1:08d}", f"step-{steps:08d}"}
        assert {p.name for p in tmp_path.iterdir()} == theirs | own


def test_a_list_of_foreign_names_removes_nothing(tmp_path):
    (tmp_path / "diary").mkdir()
    (tmp_path / "diary" / "trainer_state.json").write_text("{}")
    watch = callbacks.Checkpoint(tmp_path / "run", every_steps=1, save_total_limit=1)
    watch.load_state({"best": None, "saved": ["../diary", 7, "step-../diary"]}, {})
    trainer, (x, y) = make()
    trainer.fit(x, y, epochs=1, callbacks=[watch], max_steps=3)
    assert (tmp_path / "diary" / "trainer_state.json").exists()


def test_a_checkpoint_that_stepped_aside_comes_back(tmp_path):
    """Killed between the two renames that put a new `best` in the place of the old one."""
    trainer, _ = make()
    trainer.save_checkpoint(tmp_path / "best")
    nobody = 2**22 + 1  # more than any process number
    os.rename(tmp_path / "best", tmp_path / f".unfinished-{nobody}-old-best")
    (tmp_path / f".unfinished-{nobody}-0123abcd-best").mkdir()
    checkpoint.remove_unfinished(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["best"]
    trainer.load_checkpoint(tmp_path / "best")


def test_a_plateau_schedule_is_resumed(tmp_path):
    def plateau():
        return make(schedule=schedules.ReduceOnPlateau("val_loss", 0.5, patience=0, threshold=0.9))

    trainer, (x, y) = plateau()
    kwargs = dict(validation=(x[:32], y[:32]), batch_size=64)
    trainer.fit(x, y, epochs=3, callbacks=[callbacks.Checkpoint(tmp_path)], **kwargs)
    assert trainer.schedule.scale < 1
    again, _ = plateau()
    again.fit(x, y, epochs=3, resume=tmp_path, **kwargs)
    assert again.schedule == trainer.schedule


# ---- a full disk

FULL = """
import resource, sys
from pathlib import Path
from train.test_checkpoint import make
from onnxgrad.errors import CheckpointError, ExportError
trainer, (x, y) = make()
trainer.step(x[:16], y[:16])
folder = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))  # every write beyond it fails
for write, error in ((trainer.save_checkpoint, CheckpointError), (trainer.save, ExportError)):
    try:
        write(folder / ("step-00000002" if error is CheckpointError else "tuned.onnx"))
    except error as e:
        print(e)
"""


def test_a_full_disk_leaves_what_was_there(folder):
    shutil.copytree(folder / "step-00000002", folder / "copy")
    (folder / "tuned.onnx").write_bytes(b"an earlier model")
    tests = Path(__file__).resolve().parents[1]
    paths = [str(tests), str(tests.parent / "src"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(folder)], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    assert first.startswith(f"the checkpoint {folder}/step-00000002 could not be written: ")
    assert second.startswith(f"{folder}/tuned.onnx could not be written: ")
    assert (folder / "tuned.onnx").read_bytes() == b"an earlier model"
    for file in (folder / "copy").iterdir():
        assert file.read_bytes() == (folder / "step-00000002" / file.name).read_bytes()
    assert sorted(p.name for p in folder.iterdir()) == [
        "copy", "step-00000001", "step-00000002", "tuned.onnx",
    ]  # fmt: skip


def test_optimizers_without_state(tmp_path):
    trainer, (x, y) = make(optimizer=optimizers.SGD(lr=0.1))
    trainer.step(x[:16], y[:16])
    trainer.save_checkpoint(tmp_path / "step-00000001")
    again, _ = make(optimizer=optimizers.SGD(lr=0.1))
    again.load_checkpoint(tmp_path)
    assert bits(again) == bits(trainer)


def test_a_checkpoint_that_cannot_take_its_place_leaves_the_old_one(tmp_path, monkeypatch):
    made, _ = make()
    checkpoint.save(made.state(), tmp_path / "c")
    before = {p.name: p.read_bytes() for p in (tmp_path / "c").iterdir()}
    rename = os.rename

    def broken(source, target):
        if Path(target).name == "c" and "-old-" not in Path(source).name:
            raise OSError("the disk is gone")
        rename(source, target)

    monkeypatch.setattr(os, "rename", broken)
    with pytest.raises(CheckpointError, match="could not be written: the disk is gone"):
        checkpoint.save(made.state(), tmp_path / "c")
    assert {p.name: p.read_bytes() for p in (tmp_path / "c").iterdir()} == before
