"""A file becomes a model, or a sentence that says why not."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxgrad.errors import ModelError
from onnxgrad.files.models import ModelFile, read_ir
from onnxgrad.files.paths import is_path, name_of
from onnxgrad.graph import load


def read(model: Any) -> tuple[ir.Model, ir.Model]:
    """The model as it is written, and as the gradients see it (functions inlined, shapes inferred).

    Raises ModelError when there is no model to read: a missing, empty, truncated or foreign file, a
    missing file of external data, a graph that is not well formed.
    """
    model = ModelFile.of(model)
    original = read_ir(model)  # its errors name the file
    try:
        prepared = load(model)
    except ValueError as error:
        raise ModelError(f"{name_of(model)}: {error}" if is_path(model) else str(error)) from error
    if len(prepared.graph) == 0 and not prepared.graph.outputs:
        raise ModelError(f"{name_of(model)} holds no graph: it is not an ONNX model")
    return original, prepared
