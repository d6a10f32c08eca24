"""What was guessed, changed or left out, as records: sentences are made at the edge, where one reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Note:
    """One thing worth knowing.

    kind: what sort of thing, for programs ("untied", "frozen", "precision", …); docs/inspect.md lists them.
    subject: the tensor, node, output or column it is about.
    text: what happened and why, as a sentence without its full stop.
    change: how to have it otherwise; empty where there is no other way.
    """

    kind: str
    subject: str
    text: str
    change: str = ""

    def __str__(self) -> str:
        return f"{self.text}; {self.change}" if self.change else self.text
