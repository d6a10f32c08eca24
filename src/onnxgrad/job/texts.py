"""How settings that hold lists are written."""

from __future__ import annotations


def split_names(text: str) -> tuple[str, ...]:
    """The names of a text with commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
