"""What every flag and every public class takes: `python tests/cli/parsed.py` writes it to tests/golden/flags.txt."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType

from onnxgrad import Trainer
from onnxgrad.cli import build_parser
from onnxgrad.job.config import FIELDS
from onnxgrad.model.lora.settings import Lora
from onnxgrad.model.quantize.settings import Quantize
from onnxgrad.train import callbacks, losses, metrics, optimizers, schedules

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


def settings() -> list[str]:
    """Return a line for each setting of `train`: its default, kind and limits."""
    lines = []
    for name, field in FIELDS.items():
        kind, limits = field.metadata["kind"].__name__, field.metadata.get("limits")
        lines.append(f"setting {name}: default={field.default!r} kind={kind} limits={limits}")
    return lines


def signatures() -> list[str]:
    """Return a line for each argument with a default, of the classes that a user makes."""
    modules = (callbacks, losses, metrics, optimizers, schedules)
    found = [
        Trainer,
        Trainer.fit,
        Lora,
        Quantize,
        *(c for module in modules for c in _classes(module)),
    ]
    return [
        f"{kind.__qualname__}({p.name}={p.default!r})"
        for kind in found
        for p in inspect.signature(kind).parameters.values()
        if p.default is not p.empty and " at 0x" not in repr(p.default)
    ]


def _classes(module: ModuleType) -> list[type]:
    own = [
        v for n, v in sorted(vars(module).items()) if inspect.isclass(v) and not n.startswith("_")
    ]
    return [c for c in own if c.__module__ == module.__name__]


def everything() -> list[str]:
    return [*parsed(), *settings(), *signatures()]


if __name__ == "__main__":
    FILE.write_text("\n".join(everything()) + "\n", encoding="utf-8")
