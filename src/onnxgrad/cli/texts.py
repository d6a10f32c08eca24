"""How numbers and notes are shown. Imports nothing of training, so that the command line starts at once."""

from __future__ import annotations

import json
import math
import textwrap
from typing import Any

from rich import console as rich_console


class Console(rich_console.Console):
    """rich's console, but a closed pipe is for `main` to answer: rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def short(number: float) -> str:
    """At most seven characters, for columns that stay in line."""
    text = f"{number:.0f}" if 1e4 <= abs(number) < 1e7 else f"{number:.4g}"
    return text if len(text) <= 7 else f"{number:.3g}"


def say_json(event: str, **data: Any) -> None:
    """One object on one line; what JSON cannot say is null."""
    print(json.dumps(_plain({"event": event, **data})), flush=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def show_notes(notes: list[str], console: Console) -> None:
    """What was decided and why, one point each."""
    for note in notes:
        text = textwrap.fill(
            note, console.width, initial_indent="· ", subsequent_indent="  ", break_long_words=False
        )
        console.print(text, markup=False, soft_wrap=True)
    if notes:
        console.print()
