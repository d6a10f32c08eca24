"""How numbers and notes are shown. Imports nothing of training, so that the command line starts at once."""

from __future__ import annotations

import json
import math
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, TextIO

from rich import console as rich_console

from onnxgrad.files.paths import printable
from onnxgrad.notes import Note


class Console(rich_console.Console):
    """rich's console, but a closed pipe is for `main` to answer: rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    def render(self, renderable, options=None):
        """As rich does, without the escapes that a name from a file may hold."""
        for segment in super().render(renderable, options):
            clean = segment.control or segment.text.isprintable()
            yield segment if clean else segment._replace(text=plain(segment.text))


def plain(text: object) -> str:
    """Text from files without what would move the cursor; lines stay lines."""
    return "\n".join(printable(line) for line in str(text).split("\n"))


class Unbroken:
    """An output whose reader may leave, or whose disk may fill up: what is written then is lost, nothing stops."""

    def __init__(self, stream: TextIO):
        self.stream, self.gone = stream, False

    def write(self, text: str) -> int:
        self._try(self.stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._try(self.stream.flush)

    def _try(self, action, *arguments) -> None:
        if self.gone:
            return
        try:
            action(*arguments)
        except OSError as error:
            self.gone = True
            discard(self.stream)
            why = "the reader of the output has gone"
            if not isinstance(error, BrokenPipeError):
                why = f"the output cannot be written any more ({error.strerror})"
            print(f"onnxgrad: {why}; the work goes on", file=sys.stderr)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def discard(stream: TextIO) -> None:
    """Send what the stream still holds nowhere, or Python would try to write it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say_json(event: str, **data: Any) -> None:
    """One object on one line; what JSON cannot say is null."""
    print(json.dumps(_plain({"event": event, **data})), flush=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def show_notes(notes: Sequence[Note], console: Console) -> None:
    """What was decided and why, one point each."""
    for note in notes:
        text = textwrap.fill(
            str(note),
            max(20, console.width),  # COLUMNS may be 0
            initial_indent="· ",
            subsequent_indent="  ",
            break_long_words=False,
        )
        console.print(text, markup=False, soft_wrap=True)
    if notes:
        console.print()
