"""Text and JSON in files: UTF-8, regular files, JSON of a bounded depth."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from typing import Any, TextIO

from onnxgrad.errors import FileError
from onnxgrad.files import limits
from onnxgrad.files.paths import open_file, printable, read_bytes

_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # of a character, written as JSON does
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|#[^\n]*|[(\[{)\]}]')
DEPTH = 100  # of lists in lists; a tensor has fewer axes


def open_text(path: str | os.PathLike[str], encoding: str = "utf-8-sig") -> TextIO:
    """A text file, with its line ends as they are."""
    return io.TextIOWrapper(open_file(path), encoding=encoding, newline="")


def read_text(path: str | os.PathLike[str]) -> str:
    """A whole text file. Raises FileError where it is not text."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{printable(path)} is not text: {error}") from error


def read_json(path: str | os.PathLike[str]) -> Any:
    """A JSON file. Raises FileError where it is not JSON."""
    try:
        return parse_json(read_text(path))
    except ValueError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{printable(path)} is not JSON: {error}") from error


def parse_json(text: str) -> Any:
    """Parse JSON of at most 100 levels. Raises ValueError."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEPTH} levels") from None
    layer, depth = [found], 0
    while layer:  # level by level: a deep value must not recurse here either
        layer = [x for each in layer if isinstance(each, (list, dict)) for x in _items(each)]
        layer, depth = [x for x in layer if isinstance(x, (list, dict))], depth + 1
        if depth > DEPTH:
            raise ValueError(f"it is nested deeper than {DEPTH} levels")
    return found


def json_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file that hold something, with their numbers.

    Lines end where JSON's texts cannot: other ends, such as U+2028, may stand inside one.
    """
    for number, line in enumerate(io.StringIO(read_text(path), newline=None), 1):
        if line.strip():
            yield number, line


def parse_record(text: str) -> Any:
    """As `parse_json`, of data: what is text in it can be written and learned. Raises ValueError."""
    found = parse_json(text)
    if _HALF.search(text):
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = f"\\u{ord(error.object[error.start]):04x}"
            raise ValueError(f"it holds half a character, {half}, which is not text") from None
    return found


def check_brackets(text: str) -> None:
    """Refuse ONNX's text form where it nests deeper than graphs may: its parser ends the process there.

    Raises LimitError. Brackets in texts and comments do not count.
    """
    depth = deepest = 0
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif token in ")]}":
            depth = max(0, depth - 1)
    limits.check("depth", deepest // 4, f"it has {deepest:,} brackets inside each other")


def _items(value: list | dict) -> Any:
    return value.values() if isinstance(value, dict) else value
