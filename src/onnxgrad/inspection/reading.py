"""A file becomes a model, or a sentence that says why not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxgrad.errors import ModelError
from onnxgrad.graph import load


def read(model: Any) -> tuple[ir.Model, ir.Model]:
    """The model as it is written, and as the gradients see it (functions inlined, shapes inferred).

    Raises ModelError when there is no model to read: a missing, empty, truncated or foreign file, a
    missing file of external data, a graph that is not well formed.
    """
    if isinstance(model, (str, os.PathLike)):
        _check_file(Path(model))
    try:
        prepared = load(model)
        original = _as_written(model)
    except FileNotFoundError as error:
        raise ModelError(f"{error.filename or error}: no such file") from error
    except ValueError as error:
        raise ModelError(str(error)) from error
    if len(prepared.graph) == 0 and not prepared.graph.outputs:
        raise ModelError(f"{_name(model)} holds no graph: it is not an ONNX model")
    _check_external_data(prepared, model)
    return original, prepared


def _name(model: Any) -> str:
    return os.fspath(model) if isinstance(model, (str, os.PathLike)) else "the model"


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise ModelError(f"{path} is a folder, expected an ONNX file")
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise ModelError(f"{path} is empty, expected an ONNX model")


def _as_written(model: Any) -> ir.Model:
    if isinstance(model, ir.Model):
        return model
    if isinstance(model, (str, os.PathLike)):
        return ir.load(Path(model))
    import onnx

    proto = (
        model if isinstance(model, onnx.ModelProto) else onnx.load_model_from_string(bytes(model))
    )
    return ir.from_proto(proto)


def _check_external_data(model: ir.Model, source: Any) -> None:
    """Name every file of weights that is missing or too short, all at once."""
    wanted: dict[Path, int] = {}
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor):
            end = (tensor.offset or 0) + (tensor.length or 0)
            path = Path(tensor.path)
            wanted[path] = max(wanted.get(path, 0), end)
    faults = []
    for path, size in wanted.items():
        if not path.exists():
            faults.append(f"{path} is missing")
        elif path.stat().st_size < size:
            faults.append(f"{path} has {path.stat().st_size:,} bytes, expected {size:,}")
    if faults:
        raise ModelError(
            f"{_name(source)} keeps weights in files beside it: " + "; ".join(faults)
            + ". Put them back, or export the model again"
        )  # fmt: skip
