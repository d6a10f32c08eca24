"""How numbers are written, in tables, on charts and on lines that stay in line."""

from __future__ import annotations


def short(number: float) -> str:
    """At most seven characters, for columns that stay in line."""
    text = f"{number:.0f}" if 1e4 <= abs(number) < 1e7 else f"{number:.4g}"
    return text if len(text) <= 7 else f"{number:.3g}"


def grouped(value: float, digits: int = 3) -> str:
    """Whole numbers for thousands, a few digits for the rest."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e8 else f"{value:.{digits}g}"
