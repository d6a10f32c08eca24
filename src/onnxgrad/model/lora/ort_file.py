"""The .onnx_adapter file of onnxruntime: tensors by name, which a run takes as further inputs.

Adapter     0 format version · 1 adapter version · 2 model version · 3 [Parameter]
Parameter   0 name · 1 dims · 2 type (as in ONNX) · 3 bytes, at a multiple of 8
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from onnxgrad.errors import AdapterError, FileError
from onnxgrad.files.flat import BYTE, INT32, INT64, Reader, Writer
from onnxgrad.files.paths import read_bytes
from onnxgrad.files.write import write_bytes

SUFFIX = ".onnx_adapter"
_IDENTIFIER = b"TORT"
_VERSION = 1
_ALIGNMENT = 8
_LARGEST = 1 << 31  # bytes: a flatbuffer ends there


def read(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Return the tensors of an adapter file by name. Raises AdapterError where it is damaged or none."""
    path = Path(path)
    try:
        buffer = read_bytes(path, "an adapter file")
    except (OSError, FileError) as error:
        raise AdapterError(f"the adapter {path} cannot be read: {error}") from error
    if buffer[4:8] != _IDENTIFIER:
        raise AdapterError(
            f"{path} is not an adapter of onnxruntime: expected {_IDENTIFIER!r} from its fifth byte on"
        )
    try:
        return _tensors(path, Reader.root(buffer))
    except (struct.error, ValueError, TypeError, LookupError, OverflowError) as error:
        if isinstance(error, AdapterError):
            raise
        raise AdapterError(f"the adapter {path} is damaged or cut off: {error}") from error


def _tensors(path: Path, root: Reader) -> dict[str, np.ndarray]:
    version = root.number(0, INT32)
    if version != _VERSION:
        raise AdapterError(f"the adapter {path} has format {version}, expected {_VERSION}")
    found: dict[str, np.ndarray] = {}
    for table in root.tables(3):
        name = table.text(0)
        if not name or name in found:
            raise AdapterError(
                f"the adapter {path} is damaged: the name {name!r} is empty or twice"
            )
        found[name] = _tensor(path, name, table)
    return found


def _tensor(path: Path, name: str, table: Reader) -> np.ndarray:
    dims, raw = table.array(1, INT64), table.array(3, BYTE)
    shape = () if dims is None else tuple(int(d) for d in dims)
    kind = table.number(2, INT32)
    try:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))
    except KeyError:
        dtype = np.dtype(object)
    if dtype.kind == "O":
        raise AdapterError(f"the adapter {path}: {name!r} is of type {kind}, expected numbers")
    size = dtype.itemsize
    for d in shape:
        if d < 0 or size > _LARGEST:
            raise AdapterError(f"the adapter {path} is damaged: {name!r} has shape {list(shape)}")
        size *= d
    there = 0 if raw is None else raw.size
    if there != size:
        raise AdapterError(
            f"the adapter {path} is damaged or cut off: {name!r} of shape {list(shape)} has {there} "
            f"bytes, expected {size}"
        )
    flat = b"" if raw is None else raw.tobytes()
    return np.frombuffer(flat, dtype.newbyteorder("<")).astype(dtype).reshape(shape)


def to_bytes(tensors: Mapping[str, np.ndarray], adapter: int = 1, model: int = 1) -> bytes:
    """Return an adapter file with these tensors; `adapter` and `model` are versions for its reader."""
    to = Writer()
    tables = []
    for name, array in tensors.items():
        array = np.ascontiguousarray(array)
        raw = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        data, dims = to.aligned(raw, _ALIGNMENT), to.array(np.array(array.shape, np.int64))
        title = to.text(name)
        tables.append(
            to.table(
                (0, to.refer(title)), (1, to.refer(dims)), (2, to.int32(kind)), (3, to.refer(data))
            )
        )
    fields = [(0, to.int32(_VERSION)), (1, to.int32(adapter)), (2, to.int32(model))]
    root = to.table(*fields, (3, to.refer(to.tables(tables))))
    return to.finish(root, _IDENTIFIER)


def write(path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray]) -> None:
    """Write an adapter file, all of it or nothing."""
    write_bytes(Path(path), to_bytes(tensors))
