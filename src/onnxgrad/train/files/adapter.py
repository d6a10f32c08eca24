"""Export of an adapter: a folder that peft reads, the file that onnxruntime takes, and the model that takes it.

adapter_model.safetensors, adapter_config.json   as peft has them
adapter.onnx_adapter                             for onnxruntime's LoraAdapter
model.onnx                                       the caller's model with the adapter's tensors as inputs
                                                 that have defaults: it runs without an adapter, too
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxgrad.errors import AdapterError, ExportError, FileError
from onnxgrad.model.change import Draft
from onnxgrad.model.lora import adapter as adapters
from onnxgrad.model.lora import ort_file, peft
from onnxgrad.model.lora.change import LoraChange
from onnxgrad.notes import Note
from onnxgrad.train.files.export import export_draft
from onnxgrad.train.files.verify import verify

if TYPE_CHECKING:
    from onnxgrad.model.lora.adapter import Adapter
    from onnxgrad.train.loop.evaluation import Evaluation
    from onnxgrad.train.step.setup import TrainingPlan

FILE = f"adapter{ort_file.SUFFIX}"
MODEL = "model.onnx"
FILES = (MODEL, peft.TENSORS, peft.CONFIG, FILE)


def adapter_of(setup: TrainingPlan) -> Adapter:
    """Return the adapter that a Trainer trains. Raises AdapterError where it trains none."""
    for change in setup.model.changes:
        if isinstance(change, LoraChange):
            return change.adapter
    raise AdapterError("the trainer has no adapter: it was made without lora=...")


def export_adapter(
    setup: TrainingPlan, evaluation: Evaluation, folder: str | os.PathLike[str], base: str = ""
) -> list[Note]:
    """Write the folder; see Trainer.save_adapter. Returns notes."""
    adapter, source = adapter_of(setup), setup.model.source
    tensors = setup.store.tensors()
    folder = Path(os.path.abspath(folder))
    if folder.exists() and not folder.is_dir():
        raise AdapterError(f"{folder} is a file, expected a folder for the adapter")
    model = adapters.of_file(source.proto)
    adapters.serving(model, adapter, tensors)
    numbers = adapter.parameters(tensors)
    draft = Draft(ir.to_proto(model), {})

    def check(file: Path, path: Path) -> list[Note]:
        return verify(file, setup, evaluation, path, draft, numbers)

    name = base or (str(source.path) if source.path is not None else "")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        notes = export_draft(source, draft, folder / MODEL, verify=check)
        peft.write(folder, adapter, tensors, name)
        ort_file.write(folder / FILE, numbers)
    except (OSError, FileError) as error:
        raise ExportError(f"the adapter {folder} could not be written: {error}") from error
    return notes
