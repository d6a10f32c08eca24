"""Export: the caller's own model with new numbers in it, checked before it takes its name."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx

from onnxgrad.errors import ExportError, FileError, OnnxGradError
from onnxgrad.files.external import Folder, is_external, place
from onnxgrad.files.models import read_proto
from onnxgrad.files.system import flush
from onnxgrad.files.tensors import tensors as every_tensor
from onnxgrad.files.write import check_target, copy_file, replace, work_folder, write_bytes
from onnxgrad.model.change import Draft
from onnxgrad.model.source import OriginalModel
from onnxgrad.notes import Note
from onnxgrad.train.files.verify import verify

if TYPE_CHECKING:
    from onnxgrad.train.loop.evaluation import Evaluation
    from onnxgrad.train.step.setup import TrainingPlan


def export(
    setup: TrainingPlan,
    evaluation: Evaluation,
    path: str | os.PathLike[str],
    metadata: Mapping[str, str],
) -> list[Note]:
    """Write `setup`'s model with the store's tensors to `path`; see Trainer.save. Returns notes."""

    draft = setup.model.write_back(setup.store.tensors())

    def check(file: Path, path: Path) -> list[Note]:
        return verify(file, setup, evaluation, path, draft)

    return export_draft(setup.model.source, draft, path, metadata, check)


def export_draft(
    source: OriginalModel,
    draft: Draft,
    path: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    verify: Callable[[Path, Path], list[Note]] | None = None,
) -> list[Note]:
    """Write `draft`, made of `source`; `verify` tries the file before it takes its name."""
    path = Path(os.path.abspath(path))
    try:
        check_target(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with work_folder(path.parent, path.name) as work:
            data = _write(source, draft, work, path, metadata or {})
            said = [] if verify is None else verify(work / path.name, path)
            return [*said, *_publish(work, path, data)]
    except (OSError, FileError) as error:
        raise ExportError(
            f"{path} could not be written: {error}; what was there is unchanged"
        ) from error


def _write(
    source: OriginalModel,
    draft: Draft,
    work: Path,
    path: Path,
    metadata: Mapping[str, str],
) -> list[str]:
    """Write the model and its data files into `work`; return the names of the data files."""
    model, tensors = draft.proto, draft.tensors
    known = {entry.key: entry.value for entry in model.metadata_props}
    onnx.helper.set_model_props(model, {**known, **metadata})
    folder, names = Folder(source.path), _data_names(model, path)
    for location, name in names.items():
        with folder.open(location) as file:
            copy_file(file, work / name)
    for tensor in every_tensor(model):
        if is_external(tensor):
            _move(tensor, names[place(tensor).location])
    for name, tensor in OriginalModel.tensors_of(model):
        if name in tensors:
            _set(tensor, tensors[name], work)
    for name in names.values():
        flush(work / name)
    write_bytes(work / path.name, model.SerializeToString())
    return list(names.values())


def _set(tensor: onnx.TensorProto, array: np.ndarray, work: Path) -> None:
    """Put an array where a tensor keeps its numbers."""
    raw = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    if not is_external(tensor):
        for field in ("float_data", "double_data", "int32_data"):
            tensor.ClearField(field)
        tensor.raw_data = raw
        return
    where = place(tensor)
    with open(work / where.location, "r+b") as file:  # our own copy
        file.seek(where.offset)
        file.write(raw)
    for entry in list(tensor.external_data):
        if entry.key == "checksum":  # of the old numbers
            tensor.external_data.remove(entry)


def _move(tensor: onnx.TensorProto, location: str) -> None:
    for entry in tensor.external_data:
        if entry.key == "location":
            entry.value = location


def _data_names(model: onnx.ModelProto, path: Path) -> dict[str, str]:
    """Return the new name of each external file. It begins with the model's own, beside which it lies.

    `resnet.onnx.data` becomes `tuned.onnx.data`, and the last part tells several files apart. A name that
    exists already gets a suffix, so that the model that stands there keeps its numbers.
    """
    found = dict.fromkeys(place(t).location for t in every_tensor(model) if is_external(t))
    names: dict[str, str] = {}
    for location in found:
        name = f"{path.name}.data" if len(found) == 1 else f"{path.name}.{Path(location).name}"
        if name in names.values() or os.path.lexists(path.parent / name):
            name = f"{name}.{secrets.token_hex(4)}"
        names[location] = name
    return names


_made: set[Path] = set()  # the data files that this process wrote, which it may remove again


def _publish(work: Path, path: Path, data: list[str]) -> list[Note]:
    """Move the data files, then the model: until its name changes hands the old one is whole.

    Returns a note on the data of the model that stood there: only what this process wrote is removed.
    """
    old = _data_of(path) - set(data)
    for name in data:
        replace(work / name, path.parent / name)
        _made.add(path.parent / name)
    replace(work / path.name, path)
    mine = {name for name in old if path.parent / name in _made}
    for name in mine:
        (path.parent / name).unlink(missing_ok=True)
    left = sorted(name for name in old - mine if name.startswith(path.name))
    text = "beside {} held the weights of the model that was replaced, and is left there"
    return [Note("left", name, f"{name} {text.format(path.name)}") for name in left]


def _data_of(path: Path) -> set[str]:
    """Return the names of the data files of the model that stands at `path`, if one does."""
    try:
        found = {place(t).location for t in every_tensor(read_proto(path)) if is_external(t)}
    except (OnnxGradError, OSError):
        return set()  # no model: it has none
    return {name for name in found if (path.parent / name).exists()}
