"""How numbers and notes are shown. Imports nothing of training, so that the command line starts at once."""

from __future__ import annotations

import json
import math
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


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
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    for note in notes:
        table.add_row("[dim]·[/dim]", escape(note))
    if notes:
        console.print(table)
        console.print()
