"""Checkpoints of onnxruntime-training as other files of tensors, and back."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
from onnx import numpy_helper

from onnxgrad.dropin.old import checkpoint
from onnxgrad.dropin.old.checkpoint import Checkpoint
from onnxgrad.errors import DropInError
from onnxgrad.files.arrays import read_npz, read_safetensors, save_safetensors
from onnxgrad.files.models import read_whole
from onnxgrad.files.write import replace, save, work_folder, write_bytes


def read_tensors(path: str | os.PathLike[str]) -> Checkpoint:
    """Return the tensors of a checkpoint, old or of a Trainer, or of a .safetensors, .npz or .onnx file."""
    path = Path(path)
    if not path.exists():
        raise DropInError(f"{path} does not exist")
    if path.is_dir():
        path = path / "model.safetensors"  # of a Trainer's checkpoint
        if not path.exists():
            raise DropInError(
                f"{path.parent} is not a checkpoint: the folder has no model.safetensors"
            )
    readers = {".safetensors": read_safetensors, ".npz": read_npz, ".onnx": _onnx}
    reader = readers.get(path.suffix)
    if reader is None:
        return checkpoint.read(path)
    try:
        return Checkpoint(reader(path), {})
    except Exception as error:
        raise DropInError(f"{path} is not a {path.suffix} file: {error}") from error


def _onnx(path: Path) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in read_whole(path).graph.initializer}


def write_tensors(
    found: Checkpoint, path: str | os.PathLike[str], model: str | os.PathLike[str] | None = None
) -> None:
    """Write tensors in the format that the ending of `path` means; an .onnx file needs a `model`."""
    path = Path(path)
    if found.nominal and path.suffix in (".safetensors", ".npz", ".onnx"):
        raise DropInError("the checkpoint is nominal: it has names and no numbers to write")
    arrays = {**found.trainable, **found.frozen}
    if path.suffix == ".safetensors":
        with work_folder(path.parent, path.name) as work:
            save_safetensors(arrays, work / path.name)
            replace(work / path.name, path)
    elif path.suffix == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        write_bytes(path, buffer.getvalue())
    elif path.suffix == ".onnx":
        save(_into_model(arrays, model), path)
    else:
        checkpoint.write(found, path)


def _into_model(arrays: dict[str, np.ndarray], path: str | os.PathLike[str] | None):
    if path is None:
        raise DropInError("an .onnx file is a model with new numbers: name the model with --model")
    model = read_whole(path)
    own = {t.name: t for t in model.graph.initializer}
    used = [n for n in arrays if n in own]
    if not used:
        raise DropInError(f"the model {os.fspath(path)} has none of the checkpoint's parameters")
    for name in used:
        if list(own[name].dims) != list(arrays[name].shape):
            raise DropInError(
                f"parameter {name!r} has shape {list(arrays[name].shape)} in the checkpoint, "
                f"expected {list(own[name].dims)} as in {os.fspath(path)}"
            )
        own[name].CopyFrom(numpy_helper.from_array(arrays[name], name))
    return model


def like(found: Checkpoint, old: Checkpoint) -> Checkpoint:
    """Return the tensors of `found` sorted into trained and frozen as in `old`."""
    arrays = {**found.trainable, **found.frozen}
    missing = [n for n in (*old.trainable, *old.frozen) if n not in arrays]
    if missing:
        raise DropInError(f"parameter {missing[0]!r} of the checkpoint to follow is missing")
    return Checkpoint(
        {n: arrays[n] for n in old.trainable}, {n: arrays[n] for n in old.frozen},
        optimizer=found.optimizer, properties={**old.properties, **found.properties},
    )  # fmt: skip
