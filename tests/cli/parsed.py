"""What every flag takes: `python tests/cli/parsed.py` writes it to tests/golden/flags.txt."""

from __future__ import annotations

from pathlib import Path

from onnxgrad.cli import build_parser

FILE = Path(__file__).resolve().parents[1] / "golden" / "flags.txt"


def parsed() -> list[str]:
    """Return a line for each argument of each command: names, kind, type, default, choices, how many."""
    lines = []
    for name, parser in build_parser().commands.items():
        for a in parser.arguments:
            names = "/".join(a.option_strings) or a.dest
            kind = type(a).__name__.strip("_").removesuffix("Action")
            made = getattr(a.type, "__name__", "text") if a.type is not None else "text"
            choices = None if a.choices is None else sorted(map(str, a.choices))
            rest = f"dest={a.dest} default={a.default!r} choices={choices} nargs={a.nargs} required={a.required}"
            lines.append(f"{name} {names}: {kind} {made} const={a.const!r} {rest}")
    return lines


if __name__ == "__main__":
    FILE.write_text("\n".join(parsed()) + "\n", encoding="utf-8")
