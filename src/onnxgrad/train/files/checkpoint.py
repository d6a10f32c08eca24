"""Checkpoints: a folder with weights, optimizer state and progress, there in full or not at all.

    model.safetensors       parameters and running statistics
    optimizer.safetensors   the optimizer's state, and what callbacks keep
    trainer_state.json      step, epoch, position in the data, seed, callbacks, versions; the SHA-256 of both
                            files, of the model's graph, and of all this itself

It is written under a temporary name, flushed to the disk, then renamed. No pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import onnxgrad
from onnxgrad.errors import CheckpointError
from onnxgrad.files.arrays import read_safetensors, save_safetensors
from onnxgrad.files.paths import inside, open_file
from onnxgrad.files.system import flush, is_running
from onnxgrad.files.text import read_json
from onnxgrad.files.write import write_bytes
from onnxgrad.train.state import Progress, TrainState

FORMAT = 2
STATE = "trainer_state.json"
MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
_TEMPORARY = ".unfinished-"
_UNFINISHED = re.compile(r"\.unfinished-(\d+)-(old|gone|[0-9a-f]{8})-(.+)")  # process, why, name
_NAME = re.compile(r"step-\d{8,}")
_OPTIMIZER_STATE, _CALLBACK = "optimizer/", "callback/"  # prefixes in optimizer.safetensors
Kinds = dict[str, "type | tuple[type, ...]"]
# Fields of a TrainState that trainer_state.json holds as they are, and what each is; an integer is a count.
_PLAIN: Kinds = {"model": str, "step": int, "batches": int, "seed": int, "optimizer": str, "schedule": dict,
                 "callbacks": dict, "recipe": dict}  # fmt: skip
_PROGRESS: Kinds = {
    "epoch": int,
    "position": int,
    "rows": int,
    "loss_sum": (int, float),
    "epochs": list,
    "data": dict,
}


def save(state: TrainState, path: str | os.PathLike[str]) -> Path:
    """Write a checkpoint into the new folder `path`; one that is there is replaced.

    Raises CheckpointError where the disk is full or cannot be written; what was there remains.
    """
    path = Path(path)
    temporary = path.parent / f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}-{path.name}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_unfinished(path.parent)
        temporary.mkdir()
        _write(state, temporary)
        _publish(temporary, path)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(f"the checkpoint {path} could not be written: {error}") from error
    return path


def _write(state: TrainState, folder: Path) -> None:
    tensors = {f"{_OPTIMIZER_STATE}{n}": a for n, a in state.optimizer_state.items()}
    tensors.update((f"{_CALLBACK}{n}", a) for n, a in state.callback_tensors.items())
    save_safetensors(state.weights, folder / MODEL)
    save_safetensors(tensors, folder / OPTIMIZER)
    files = {name: _digest(folder / name) for name in (MODEL, OPTIMIZER)}
    written = {
        **state.extra,
        "format": FORMAT,
        "files": files,
        **{name: getattr(state, name) for name in _PLAIN},
        "progress": None if state.progress is None else state.progress.as_dict(),
        "versions": _versions(),
    }
    kept = {k: v for k, v in written.items() if v is not None}
    kept["sha256"] = _state_digest(kept)
    write_bytes(folder / STATE, json.dumps(kept, indent=1).encode())


def _state_digest(written: dict[str, Any]) -> str:
    """The hash of trainer_state.json without the hash itself."""
    rest = {k: v for k, v in written.items() if k != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


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
    """Remove what a killed process left; a process that still runs keeps its own.

    One killed while a checkpoint took the place of another leaves the old one aside: it gets its name back.
    """
    for left in sorted(folder.glob(f"{_TEMPORARY}*")):
        match = _UNFINISHED.fullmatch(left.name)
        if match is None:
            continue  # not ours
        owner, why, name = int(match[1]), match[2], match[3]
        if owner != os.getpid() and is_running(owner):
            continue
        if why == "old" and not (folder / name).exists():
            os.rename(left, folder / name)
        else:
            shutil.rmtree(left, ignore_errors=True)


def checkpoints(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the checkpoints of a folder, the newest first, by their step."""
    found = [p for p in Path(folder).glob("step-*") if p.is_dir()]
    return sorted(found, key=lambda p: p.name, reverse=True)


@dataclass(frozen=True)
class Found:
    """The state of a checkpoint, its folder, and why newer ones were passed over."""

    state: TrainState
    path: Path
    refused: list[str]


def find(own: TrainState, path: str | os.PathLike[str]) -> Found:
    """Read a checkpoint, or the newest good one of a folder of them, that continues the state `own`.

    Raises CheckpointError with every reason where none is good.
    """
    refused: list[str] = []
    for candidate in _candidates(Path(path)):
        try:
            state = read(candidate)
        except CheckpointError as error:
            refused.append(str(error))
            continue
        reason = state.mismatch(own)
        if not reason:
            return Found(state, candidate, refused)
        refused.append(f"{candidate}: {reason}")
    raise CheckpointError("\n".join(refused))


def _candidates(path: Path) -> list[Path]:
    """A checkpoint, or those of a folder, or of the folder `checkpoints` of a run; the newest first."""
    if not path.exists():
        raise CheckpointError(f"{path} does not exist")
    if (path / STATE).exists():
        return [path]
    return checkpoints(path) or checkpoints(path / "checkpoints") or [path]


def recipe_of(path: str | os.PathLike[str]) -> dict[str, Any]:
    """How the trainer of the newest good checkpoint was made; raises CheckpointError where none is good."""
    refused: list[str] = []
    for candidate in _candidates(Path(path)):
        try:
            return read(candidate).recipe
        except CheckpointError as error:
            refused.append(str(error))
    raise CheckpointError("\n".join(refused))


def read(path: Path) -> TrainState:
    """Return the state of one checkpoint, after checking its files."""
    try:
        written = read_json(inside(STATE, path))
        files = dict(written["files"])
        if written["format"] > FORMAT:
            raise CheckpointError(
                f"{path}: its format is {written['format']}, this onnxgrad reads up to {FORMAT}"
            )
        if written["sha256"] != _state_digest(written):
            raise CheckpointError(f"{path}: {STATE} is damaged or cut off, its hash differs")
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: not a checkpoint: {STATE} is missing") from error
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
    try:
        return _state(written, *loaded)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path}: {STATE} is damaged or foreign ({error})") from error


def _state(written: dict, weights: dict, tensors: dict) -> TrainState:
    progress, known = (
        written.get("progress"),
        (*_PLAIN, "format", "files", "progress", "versions", "sha256"),
    )
    _expect(_PLAIN, written)
    _expect(_PROGRESS, progress or {})
    return TrainState(
        weights=weights,
        optimizer_state=_below(_OPTIMIZER_STATE, tensors),
        callback_tensors=_below(_CALLBACK, tensors),
        progress=None if progress is None else Progress(**progress),
        extra={k: v for k, v in written.items() if k not in known},
        **{name: written[name] for name in _PLAIN if name in written},
    )


def _expect(kinds: Kinds, values: dict[str, Any]) -> None:
    """Raise ValueError for a value of another kind than training works with, and for a count that cannot be one."""
    for name in kinds.keys() & values.keys():
        value, kind = values[name], kinds[name]
        counts = kind is not int or (isinstance(value, int) and 0 <= value < 1 << 63)
        if not isinstance(value, kind) or isinstance(value, bool) or not counts:
            raise ValueError(f"{name} is {value!r:.60}")


def _below(prefix: str, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {n[len(prefix) :]: a for n, a in tensors.items() if n.startswith(prefix)}


def name_of(step: int) -> str:
    """Return the name of the checkpoint of a step, in the folder of a run."""
    return f"step-{step:08d}"


def is_name(name: object) -> bool:
    """Whether `name_of` gives such names: what a file lists is removed only then."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def remove(old: Path) -> None:
    """Remove a checkpoint of this run, if it is still there and is one."""
    if not (old / STATE).is_file() or old.is_symlink():
        return
    gone = old.parent / f"{_TEMPORARY}{os.getpid()}-gone-{old.name}"
    os.rename(old, gone)  # first out of sight: a half-removed checkpoint must not look whole
    shutil.rmtree(gone, ignore_errors=True)


def _versions() -> dict[str, str]:
    import onnxruntime

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
