"""Write a file so that a reader sees the old one or the new one, never half of either.

Whatever stands under the name is replaced, never written through: a link is exchanged for a file, and its
target stays as it is. Nothing is replaced but a regular file.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from onnxgrad.errors import FileError
from onnxgrad.files import system
from onnxgrad.files.paths import kind, printable

if TYPE_CHECKING:
    import onnx


def save(model: onnx.ModelProto, path: str | os.PathLike[str]) -> None:
    """Write `model` to a temporary name beside `path`, flush it to the disk, and rename it."""
    write_bytes(Path(path), model.SerializeToString())


def write_bytes(target: Path, data: bytes) -> None:
    """Replace the file in one step."""
    target = Path(target)
    check_target(target)
    if not target.parent.exists():
        raise FileNotFoundError(f"{target.parent}: no such folder")
    try:
        _replace(target, data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error


def _replace(target: Path, data: bytes) -> None:
    temporary = target.parent / temporary_name(target.name)
    try:
        with create(temporary) as file:
            file.write(data)
        replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def replace(finished: Path, target: Path) -> None:
    """Give a finished file its name, in place of what has it."""
    check_target(target)
    os.replace(finished, target)
    system.flush(target.parent)


def temporary_name(name: str) -> str:
    """A name that nobody can guess, and so nobody can have prepared; hidden, beside the real one."""
    return f".{name[:100]}.{secrets.token_hex(8)}"


@contextlib.contextmanager
def create(path: Path) -> Iterator[BinaryIO]:
    """A new file with the rights that the umask leaves, on the disk when the block ends."""
    handle = os.open(path, system.CREATE, 0o666)
    with os.fdopen(handle, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def check_target(path: str | os.PathLike[str], *sources: str | os.PathLike[str]) -> None:
    """Refuse a name that must not be replaced: a folder, a device, a pipe, or one of the `sources`.

    Raises IsADirectoryError or FileError.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(f"{printable(path)} is a folder, expected a file name")
    if not stat.S_ISREG(status.st_mode):
        raise FileError(
            f"{printable(path)} is {kind(status.st_mode)}, expected the name of a file to write"
        )
    for source in sources:
        if os.path.exists(source) and os.path.samefile(path, source):
            raise FileError(f"{printable(path)} is read by this run: name another file to write")


@contextlib.contextmanager
def work_folder(parent: Path, name: str) -> Iterator[Path]:
    """A new folder of our own beside a result; it and what is left in it goes with the block."""
    folder = parent / temporary_name(name)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def copy_file(source: BinaryIO, target: Path) -> None:
    """Copy an open file into a new one."""
    with create(target) as file:
        shutil.copyfileobj(source, file, 1 << 20)
