"""Checkpoints: a folder with weights, optimizer state and progress, there in full or not at all.

    model.safetensors       parameters and running statistics
    optimizer.safetensors   the optimizer's state, and what callbacks keep
    trainer_state.json      step, epoch, position in the data, seed, callbacks, versions; the SHA-256 of both
                            files and of the model's graph

It is written under a temporary name, flushed to the disk, then renamed. No pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgrad.errors import CheckpointError
from onnxgrad.files.arrays import read_safetensors, save_safetensors
from onnxgrad.files.paths import inside, open_file
from onnxgrad.files.text import read_json
from onnxgrad.files.write import flush, write_bytes

if TYPE_CHECKING:
    from onnxgrad.train.trainer import Trainer

FORMAT = 1
STATE = "trainer_state.json"
MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
_TEMPORARY = ".unfinished-"


def save(trainer: Trainer, path: str | os.PathLike[str], progress: dict[str, Any]) -> Path:
    """Write a checkpoint into the new folder `path`; one that is there is replaced.

    Raises CheckpointError where the disk is full or cannot be written; what was there remains.
    """
    path = Path(path)
    temporary = path.parent / f"{_TEMPORARY}{os.getpid()}-{path.name}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_unfinished(path.parent)
        temporary.mkdir()
        _write(trainer, temporary, progress)
        _publish(temporary, path)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(f"the checkpoint {path} could not be written: {error}") from error
    return path


def _write(trainer: Trainer, folder: Path, progress: dict[str, Any]) -> None:
    store = trainer.store
    tensors = progress.pop("tensors", {})
    optimizer = {f"optimizer/{n}": a for n, a in store.state().items()}
    optimizer.update((f"callback/{n}", a) for n, a in tensors.items())
    save_safetensors(store.tensors(), folder / MODEL)
    save_safetensors(optimizer, folder / OPTIMIZER)
    files = {name: _digest(folder / name) for name in (MODEL, OPTIMIZER)}
    state = {
        "format": FORMAT,
        "model": trainer._setup.model.source.digest(),
        "files": files,
        "step": trainer._stepper.steps,
        "batches": trainer._stepper.batches,
        "seed": trainer.seed,
        "optimizer": type(trainer.optimizer).__name__,
        "schedule": _schedule_state(trainer),
        "versions": _versions(),
        **progress,
    }
    write_bytes(folder / STATE, json.dumps(state, indent=1).encode())


def _publish(temporary: Path, path: Path) -> None:
    """Give a complete folder its name. A folder cannot replace another: the old one steps aside."""
    aside = None
    if path.exists():
        aside = path.parent / f"{_TEMPORARY}{os.getpid()}-old-{path.name}"
        os.rename(path, aside)
    try:
        os.rename(temporary, path)
    except OSError:
        if aside is not None:
            os.rename(aside, path)
        raise
    flush(path.parent)
    if aside is not None:
        shutil.rmtree(aside, ignore_errors=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed process left; a process that still runs keeps its own."""
    for left in folder.glob(f"{_TEMPORARY}*"):
        owner = left.name[len(_TEMPORARY) :].split("-")[0]
        if not owner.isdigit() or int(owner) == os.getpid() or not _alive(int(owner)):
            shutil.rmtree(left, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def checkpoints(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the checkpoints of a folder, the newest first, by their step."""
    found = [p for p in Path(folder).glob("step-*") if p.is_dir()]
    return sorted(found, key=lambda p: p.name, reverse=True)


def restore(trainer: Trainer, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Load a checkpoint, or the newest good one of a folder of them, into the trainer.

    Returns its state, and under "refused" why newer ones were passed over. Raises CheckpointError
    with every reason where none is good; the trainer is then as it was.
    """
    path = Path(path)
    if not path.exists():
        raise CheckpointError(f"{path} does not exist")
    single = (path / STATE).exists() or not checkpoints(path)
    refused: list[str] = []
    for candidate in [path] if single else checkpoints(path):
        try:
            state, weights, tensors = read(candidate)
            _check(trainer, candidate, state, weights, tensors)
        except CheckpointError as error:
            refused.append(str(error))
            continue
        _load(trainer, state, weights, tensors)
        return {**state, "refused": refused, "path": str(candidate)}
    raise CheckpointError("\n".join(refused))


def read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return state, weights and the other tensors of one checkpoint, after checking its files."""
    try:
        state = read_json(inside(STATE, path))
        files = state["files"]
        if state["format"] > FORMAT:
            raise CheckpointError(
                f"{path}: its format is {state['format']}, this onnxgrad reads up to {FORMAT}"
            )
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no checkpoint, {STATE} is missing") from error
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: {STATE} is damaged or foreign ({error})") from error
    loaded = []
    for name in (MODEL, OPTIMIZER):
        try:
            if _digest(inside(name, path)) != files.get(name):
                raise CheckpointError(f"{path}: {name} is damaged or cut off, its hash differs")
            loaded.append(read_safetensors(inside(name, path)))
        except FileNotFoundError as error:
            raise CheckpointError(f"{path}: {name} is missing") from error
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path}: {name} cannot be read ({error})") from error
    return state, loaded[0], loaded[1]


def _check(trainer: Trainer, path: Path, state: dict, weights: dict, tensors: dict) -> None:
    if state.get("model") != trainer._setup.model.source.digest():
        raise CheckpointError(f"{path}: it is a checkpoint of another model")
    if state.get("seed") != trainer.seed:
        raise CheckpointError(f"{path}: its seed is {state.get('seed')}, not {trainer.seed}")
    own = type(trainer.optimizer).__name__
    if state.get("optimizer") != own:
        raise CheckpointError(f"{path}: its optimizer is {state.get('optimizer')}, not {own}")
    saved = {**weights, **{n: a for n, a in tensors.items() if n.startswith("optimizer/")}}
    mine = {
        **trainer.store.tensors(),
        **{f"optimizer/{n}": a for n, a in trainer.store.state().items()},
    }
    for name in sorted({*saved, *mine}):
        if name not in saved or name not in mine:
            side = "lacks" if name not in saved else "also trains"
            raise CheckpointError(
                f"{path}: it {side} {name!r}; were `trainable` or settings changed?"
            )
        if saved[name].shape != mine[name].shape or saved[name].dtype != mine[name].dtype:
            raise CheckpointError(
                f"{path}: {name!r} has shape {list(saved[name].shape)}, "
                f"expected {list(mine[name].shape)}"
            )


def _load(trainer: Trainer, state: dict, weights: dict, tensors: dict) -> None:
    store = trainer.store
    for name, array in store.tensors().items():
        array[...] = weights[name]
    for name, array in store.state().items():
        array[...] = tensors[f"optimizer/{name}"]
    prefix = "callback/"
    state["tensors"] = {n[len(prefix) :]: a for n, a in tensors.items() if n.startswith(prefix)}
    trainer._stepper.resume(state["step"], state["batches"])
    schedule = getattr(trainer.schedule, "then", trainer.schedule)
    if state.get("schedule") and hasattr(schedule, "load_state"):
        schedule.load_state(state["schedule"])


def prune(folder: str | os.PathLike[str], keep: int) -> None:
    """Remove all but the newest `keep` checkpoints of a folder."""
    for old in checkpoints(folder)[keep:]:
        gone = old.parent / f"{_TEMPORARY}{os.getpid()}-gone-{old.name}"
        os.rename(old, gone)  # first out of sight: a half-removed checkpoint must not look whole
        shutil.rmtree(gone, ignore_errors=True)


def _schedule_state(trainer: Trainer) -> dict[str, Any] | None:
    schedule = getattr(trainer.schedule, "then", trainer.schedule)
    return schedule.state() if hasattr(schedule, "state") else None


def _versions() -> dict[str, str]:
    import onnx
    import onnxruntime

    import onnxgrad

    return {
        "onnxgrad": onnxgrad.__version__,
        "onnxruntime": onnxruntime.__version__,
        "onnx": onnx.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open_file(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
