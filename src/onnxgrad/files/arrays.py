"""Arrays in files: .npz, .npy, safetensors. No pickle is ever read, and no header is believed."""

from __future__ import annotations

import io
import math
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save_file

from onnxgrad.errors import DataError, FileError
from onnxgrad.files import limits
from onnxgrad.files.paths import open_file, printable, read_bytes
from onnxgrad.files.system import flush
from onnxgrad.files.write import create

UNPACKED_FREELY = 256 << 20  # bytes: below this nobody minds how well a file was packed


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name. Raises DataError with the file and the member at fault."""
    try:
        with open_file(path, "an .npz file") as file, zipfile.ZipFile(file) as archive:
            members = _members(archive, os.fstat(file.fileno()).st_size, path)
            return {name: _member(archive, info, name) for name, info in members}
    except FileError:
        raise
    except MemoryError:
        raise MemoryError(f"the arrays of {printable(path)} do not fit") from None
    except (
        Exception
    ) as error:  # zipfile, zlib and NumPy have many: BadZipFile, EOFError, SyntaxError
        raise DataError(
            f"{printable(path)} is not an .npz file of plain arrays: {printable(error)}"
        ) from error


def check_unpacked(taken: int, size: int, who: str) -> None:
    """Raise LimitError where a file of `size` bytes would take far more memory than it is worth."""
    if taken > UNPACKED_FREELY:
        text = f"{who} would unpack to {taken:,} bytes, from a file of {size:,}"
        limits.check("unpacked", -(-taken // max(size, 1)), text)


def text_array(texts: Sequence[str], who: str, size: int) -> np.ndarray:
    """Texts as an array, in which each takes as much as the longest. Raises LimitError as `check_unpacked`."""
    check_unpacked(4 * len(texts) * max(map(len, texts), default=0), size, who)
    return np.array(texts)


def _members(
    archive: zipfile.ZipFile, size: int, path: Any
) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    infos = archive.infolist()
    limits.check("columns", len(infos), f"{printable(path)} has {len(infos):,} arrays")
    check_unpacked(sum(info.file_size for info in infos), size, printable(path))
    names = [info.filename.removesuffix(".npy") for info in infos]
    for name in names:
        if name.startswith("/") or ".." in name.split("/"):
            raise DataError(
                f"{printable(path)}: the member {printable(name)!r} has a name that leads out"
            )
    if len(set(names)) != len(names):
        raise DataError(f"{printable(path)} has two arrays of one name")
    return zip(names, infos, strict=True)


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> np.ndarray:
    """One array; its header must ask for as many bytes as there are."""
    with archive.open(info) as file:
        shape, order, dtype = _header(file)
        if dtype.hasobject:
            raise ValueError(f"'{name}' holds Python objects, which are never loaded")
        count = math.prod(shape)
        have = info.file_size - file.tell()
        if count * dtype.itemsize != have:
            raise ValueError(
                f"'{name}' has {have:,} bytes, and its header says {count * dtype.itemsize:,}"
            )
        data = bytearray(have)
        view, done = memoryview(data), 0
        while done < have and (got := file.readinto(view[done:])):
            done += got
        if done < have:
            raise ValueError(f"'{name}' ends after {done:,} of {have:,} bytes")
    array = np.frombuffer(data, dtype, count) if have else np.empty(count, dtype)
    return array.reshape(shape, order="F" if order else "C")


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"its version is {version}, expected 1.0 or 2.0")
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    return read(file)  # fmt: skip


def map_npy(path: str | os.PathLike[str]) -> np.ndarray:
    """The array of an .npy file, mapped: larger than the memory is fine. Raises DataError."""
    try:
        with open_file(path, "an .npy file") as file:
            return _mapped(file)
    except FileError:
        raise
    except Exception as error:
        raise DataError(
            f"{printable(path)} is not an .npy file of a plain array: {printable(error)}"
        ) from error


def _mapped(file: BinaryIO) -> np.ndarray:
    shape, order, dtype = _header(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never loaded")
    size, have = math.prod(shape) * dtype.itemsize, os.fstat(file.fileno()).st_size - file.tell()
    if have < size:
        raise ValueError(f"it has {have:,} bytes, and its header says {size:,}")
    if not size:
        return np.empty(shape, dtype)
    return np.memmap(file, dtype, "r", file.tell(), shape, "F" if order else "C")


def map_bytes(path: str | os.PathLike[str]) -> np.ndarray:
    """The bytes of a file, mapped."""
    with open_file(path) as file:
        if not os.fstat(file.fileno()).st_size:
            return np.empty(0, np.uint8)
        return np.memmap(file, np.uint8, "r")


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file by name. Raises DataError where it is not one."""

    data = read_bytes(path, "a safetensors file")
    try:
        return load(data)
    except Exception as error:  # SafetensorError, and what NumPy says of types that it lacks
        raise DataError(
            f"{printable(path)} is not a safetensors file: {printable(error)}"
        ) from error


def save_safetensors(arrays: dict[str, np.ndarray], path: Path) -> None:
    """Write a new safetensors file, on the disk when this returns. Raises OSError."""

    with create(path) as file:
        mode = os.fstat(file.fileno()).st_mode
    try:
        # ascontiguousarray gives a scalar an axis
        save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, path)
    except SafetensorError as error:  # which wraps what the system said
        raise OSError(f"{path.name}: {error}") from error
    os.chmod(path, stat.S_IMODE(mode))  # it gives the file rights of its own
    flush(path)


def npz_bytes(arrays: Mapping[str, Any]) -> bytes:
    """Return the bytes of an .npz file. np.savez would refuse names that are its own arguments, such as file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()
