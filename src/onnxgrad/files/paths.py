"""Paths: those that a user names, which may lie anywhere, and those that a file names, which may not."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO

from onnxgrad.errors import FileError, MissingFileError
from onnxgrad.files import system

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
# Halves of what is not a character, such as a byte that is not UTF-8.
_HALVES = re.compile(r"[\ud800-\udfff]")


def printable(name: object) -> str:
    """A name from a file without what would move the cursor, ring a bell, reverse the line, or is not text."""
    return _HALVES.sub("�", _CONTROL.sub("�", str(name)))


def regular_file(path: str | os.PathLike[str], expected: str = "a file") -> os.stat_result:
    """The status of the regular file that a user named; a link may lead there.

    Raises FileError for a folder, a device, a fifo or a socket: reading one may never end.
    """
    path = os.fspath(path)
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(f"{printable(path)}: no such file") from None
    except ValueError:  # a NUL in the name
        raise FileError(f"{printable(path)!r} is not a file name") from None
    if not stat.S_ISREG(status.st_mode):
        raise FileError(f"{printable(path)} is {kind(status.st_mode)}, expected {expected}")
    return status


def kind(mode: int) -> str:
    """What stands under a name, in words."""
    kinds = {
        stat.S_IFDIR: "a folder", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
        stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link",
        stat.S_IFREG: "a file",
    }  # fmt: skip
    return kinds.get(stat.S_IFMT(mode), "no file")


def open_file(path: str | os.PathLike[str], expected: str = "a file") -> BinaryIO:
    """Open the regular file that a user named. The check is repeated on what was opened."""
    regular_file(path, expected)
    # Without waiting: a fifo that took the name in between would wait for a writer.
    handle = os.open(os.fspath(path), system.READ)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise FileError(f"{printable(path)} is {kind(mode)}, expected {expected}")
    return os.fdopen(handle, "rb")


def read_bytes(path: str | os.PathLike[str], expected: str = "a file") -> bytes:
    """The content of the regular file that a user named."""
    with open_file(path, expected) as file:
        return file.read()


def inside(location: str, *folders: str | os.PathLike[str]) -> Path:
    """The real path of what a file calls `location`, which must lie in the first folder.

    Links are followed, as long as they end in one of the folders. Raises FileError where the name is
    absolute, climbs out, or leads out by a link.
    """
    if not location or _CONTROL.search(location):
        raise FileError(f"{printable(location)!r} is not a file name")
    if os.path.isabs(location) or Path(location).drive:
        raise FileError(f"{location!r} is absolute, expected a name inside the folder")
    if os.path.normpath(location).split(os.sep)[0] == os.pardir:
        raise FileError(f"{location!r} leads out of its folder")
    real = Path(os.path.realpath(os.path.join(folders[0], location)))
    homes = [Path(os.path.realpath(folder)) for folder in folders]
    if not any(home == real or home in real.parents for home in homes):
        raise FileError(
            f"{location!r} is a link that leads out of its folder, to {printable(real)}"
        )
    return real


def is_path(model: Any) -> bool:
    return isinstance(model, (str, os.PathLike))


def name_of(model: Any) -> str:
    """How a message calls a model."""
    return printable(os.fspath(model)) if is_path(model) else "the model"


def root(error: BaseException) -> BaseException:
    """The innermost cause, which is where onnx-ir says what is wrong."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error
