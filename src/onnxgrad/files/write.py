"""Write a model so that a reader sees the old file or the new one, never half of either."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import onnx


def save(model: onnx.ModelProto, path: str | os.PathLike[str]) -> None:
    """Write `model` to a temporary name beside `path`, flush it to the disk, and rename it."""
    write_bytes(Path(path), model.SerializeToString())


def write_bytes(target: Path, data: bytes) -> None:
    """Replace the file in one step."""
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder, expected a file name")
    if not target.parent.exists():
        raise FileNotFoundError(f"{target.parent}: no such folder")
    try:
        _replace(target, data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error


def _replace(target: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
