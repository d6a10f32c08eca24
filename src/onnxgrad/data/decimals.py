"""Numbers with a comma for their point, as spreadsheets of many languages write them between semicolons or tabs."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from onnxgrad.errors import DataError
from onnxgrad.notes import Note

_DECIMAL = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")


class Decimals:
    """Turns columns of such numbers into numbers, and says so; `numbers` makes an array of texts with points."""

    def __init__(self, source: str, delimiter: str, numbers: Callable[[np.ndarray], np.ndarray]):
        self.source, self.possible, self.numbers = source, delimiter != ",", numbers
        self.columns: list[str] = []

    def __call__(self, name: str, texts: np.ndarray) -> np.ndarray:
        """Return integers, floats or, where neither fits, the texts. Raises DataError for 1,234: it may be 1234."""
        found = self.numbers(texts)
        if not self.possible or found.dtype.kind != "U":
            return found
        commas = [str(t) for t in texts if "," in str(t)]
        if not commas or not all(_DECIMAL.fullmatch(t) for t in commas):
            return found
        pointed = self.numbers(np.char.replace(texts, ",", "."))
        if pointed.dtype.kind == "U":
            return found
        if name not in self.columns:
            if all(_THOUSANDS.fullmatch(t) for t in commas):
                raise DataError(
                    f"{self.source}: column '{name}' holds {commas[0]!r}, which may be {commas[0].replace(',', '')} "
                    f"or {commas[0].replace(',', '.')}, expected numbers with a point or without thousands' commas"
                )
            self.columns.append(name)
        return pointed

    def notes(self) -> list[Note]:
        if not self.columns:
            return []
        listed = ", ".join(f"'{name}'" for name in self.columns[:4])
        listed += " …" * (len(self.columns) > 4)
        text = f"{self.source} writes decimals with a comma: {listed}"
        return [Note("decimals", ", ".join(self.columns), text)]
