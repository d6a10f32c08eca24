"""Writes the files of a step, and trained parameters back into their model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxgrad.errors import ExportError
from onnxgrad.files.arrays import read_npz, read_safetensors
from onnxgrad.files.models import ModelFile, data_files, read_whole
from onnxgrad.files.paths import is_path
from onnxgrad.files.write import check_target, save, write_bytes
from onnxgrad.model.trainable import TrainableModel
from onnxgrad.notes import Note
from onnxgrad.stepfile import dropout as standard_dropout
from onnxgrad.stepfile.graph import Clipping, Description, initial_model, step_model
from onnxgrad.stepfile.programs import programs
from onnxgrad.train import optimizers
from onnxgrad.train.files.export import export_draft
from onnxgrad.train.step import build
from onnxgrad.train.step.setup import TrainingPlan

METADATA = "onnxgrad.step"


@dataclass(frozen=True)
class StepFiles:
    """What was written.

    step: takes a batch, parameters, state and settings; gives the loss and `new.<name>` for each.
    initial: takes nothing, gives the parameters and state of the first step.
    evaluate: the model in inference form, with its parameters as inputs.
    """

    step: Path
    initial: Path
    evaluate: Path
    description: Description
    notes: list[Note]
    program: Path | None = None


def write_step(
    model: Any,
    output: str | os.PathLike[str],
    *,
    loss: Any = None,
    optimizer: Any = "adamw",
    lr: float | None = None,
    trainable: str | Iterable[str] = "all",
    clip_norm: float | None = None,
    clip_value: float | None = None,
    freeze_bn: bool = False,
    dropout: float | None = None,
    fused: bool = False,
    emit: str | None = None,
) -> StepFiles:
    """Write forward, loss, gradients and optimizer as one ONNX file that any onnxruntime runs.

    model, loss, optimizer, lr, trainable, clip_norm, clip_value, freeze_bn and dropout are as for
    `onnxgrad.Trainer`. `fused` uses onnxgrad's operators, which need its library; otherwise the file
    has standard operators only. `emit` ("js", "web", "cpp", "csharp", "java") also writes a small program
    that trains with the files.

    Raises GradientError where the model has no gradient.
    """
    model, output = ModelFile.of(model), Path(output)
    paths = [output, _beside(output, "init"), _beside(output, "eval")]
    for path in paths:
        _check_target(path, model)
    chosen = optimizers.resolve(optimizer, lr)
    clipping = Clipping(clip_norm, clip_value)
    notes: list[Note] = []

    def prepare(source: Any) -> TrainingPlan:
        return TrainingPlan(
            source, loss, {}, trainable, chosen, [], freeze_bn=freeze_bn, dropout=dropout, seed=0,
            ops="fused" if fused else "standard",
        )  # fmt: skip

    setup = prepare(model)
    if setup.settings and not fused and setup.base.opset_imports[""] < standard_dropout.OPSET:
        setup = prepare(_newer(model, notes))
    step, description = step_model(setup, chosen, clipping, standard=not fused)
    _check_standard(step, fused)
    onnx.helper.set_model_props(step, {METADATA: json.dumps(description.as_dict())})
    tensors = setup.store.tensors()
    initial = initial_model(tensors, step, description.state)
    held, _, _ = build.evaluation_graph(setup.base.clone(), None, tensors)
    evaluate = held.whole()
    for path, written in zip(paths, (step, initial, evaluate), strict=True):
        if not fused:
            _drop_domain(written)
        save(written, path)
    written = _emit(emit, output, description) if emit else None
    return StepFiles(*paths, description, [*notes, *setup.notes], written)


def _check_target(path: Path, *sources: Any) -> None:
    """Refuse to write over what is read: a model and its weights, or parameters."""
    read = [source for source in sources if is_path(source)]
    check_target(path, *read, *(file for source in read for file in data_files(source)))


def _beside(path: Path, word: str) -> Path:
    """`step.onnx` and "init" give `step.init.onnx`."""
    return path.with_name(f"{path.stem}.{word}{path.suffix or '.onnx'}")


def _newer(model: Any, notes: list[Note]) -> onnx.ModelProto:
    """Return the model in an opset that has the operators of the dropout's hash."""
    proto = read_whole(model)
    wanted = standard_dropout.OPSET
    try:
        newer = onnx.version_converter.convert_version(proto, wanted)
    except Exception as error:
        raise ExportError(
            f"dropout in standard operators needs opset {wanted}, and the model could not be "
            f"converted to it ({error}); leave dropout out with dropout=0, or use fused=True"
        ) from error
    text = f"the step file has opset {wanted}: dropout in standard operators needs it"
    notes.append(Note("opset", str(wanted), text))
    return newer


def _check_standard(step: onnx.ModelProto, fused: bool) -> None:
    others = sorted({f"{n.domain}::{n.op_type}" for n in step.graph.node if n.domain})
    if others and not fused:
        raise ExportError(
            f"the step needs {', '.join(others)}, which are not standard operators; "
            "fused=True writes a file for sessions that have onnxgrad's library"
        )


def _drop_domain(model: onnx.ModelProto) -> None:
    used = {n.domain for n in model.graph.node} | {""}
    kept = [i for i in model.opset_import if i.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def _emit(language: str, step: Path, description: Description) -> Path:
    """Write the program and what it includes; return the program."""
    written = []
    for name, text in programs(language, step.stem, description).items():
        path = step.parent / name
        path.parent.mkdir(exist_ok=True)
        write_bytes(path, text.encode())
        written.append(path)
    return written[0]


def merge(
    model: Any, parameters: str | os.PathLike[str], output: str | os.PathLike[str]
) -> list[str]:
    """Write `model` with the parameters of a .safetensors or .npz file; return their names.

    Raises ExportError where a name or a shape is not the model's.
    """
    _check_target(Path(output), model, parameters)
    subject = TrainableModel(model)
    known = {t.name: t.shape for t in subject.tensors()}
    tensors = _read_parameters(Path(parameters))
    for name, array in tensors.items():
        if name not in known:
            listed = ", ".join(map(repr, list(known)[:5]))
            raise ExportError(
                f"{parameters} has {name!r}, which the model does not have (it has {listed} …); "
                "expected the parameters of a step file of this model"
            )
        expected = known[name]
        if array.shape != expected:
            raise ExportError(
                f"{parameters}: {name!r} has shape {list(array.shape)}, expected {list(expected)}"
            )
    export_draft(subject.source, subject.write_back(tensors), output)
    return list(tensors)


def _read_parameters(path: Path) -> dict[str, np.ndarray]:
    try:
        return read_npz(path) if path.suffix == ".npz" else read_safetensors(path)
    except ValueError as error:
        raise ExportError(f"{path} cannot be read as .safetensors or .npz: {error}") from error
