"""What every flag and every public class takes: `python tests/cli/parsed.py` writes it to tests/golden/flags.txt."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import onnxgrad
from onnxgrad.cli import build_parser
from onnxgrad.dropin import artifacts
from onnxgrad.dropin.api import checkpoint_state, lr_scheduler, module, optimizer
from onnxgrad.dropin.onnxblock import blocks
from onnxgrad.dropin.onnxblock.loss import loss
from onnxgrad.dropin.onnxblock.optim import optim
from onnxgrad.job.config import FIELDS
from onnxgrad.model import head
from onnxgrad.model.lora import settings as lora
from onnxgrad.model.quantize import settings as quantize
from onnxgrad.train import callbacks, losses, metrics, optimizers, row_losses, schedules, trackers
from onnxgrad.train.parallel import division

OTHERS = (
    artifacts, checkpoint_state, lr_scheduler, module, optimizer, blocks, loss, optim, head, lora, quantize, row_losses,
    trackers, division,
)  # fmt: skip
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
    """Return a line for each argument with a default, of what a user calls."""
    given = [getattr(onnxgrad, n) for n in sorted(onnxgrad.__all__)]
    for place in (callbacks, losses, metrics, optimizers, schedules, *OTHERS):
        given += [v for n, v in sorted(vars(place).items()) if _is_own(n, v, place)]
    calls = [c for value in dict.fromkeys(v for v in given if callable(v)) for c in _calls(value)]
    return [
        f"{call.__qualname__}({p.name}={p.default!r})" for call in calls for p in _defaults(call)
    ]


def _is_own(name: str, value: object, place: ModuleType) -> bool:
    return not name.startswith("_") and getattr(value, "__module__", "") == place.__name__


def _calls(value: Callable) -> list[Callable]:
    """A function, or a class and its methods."""
    names = [n for n in vars(value) if not n.startswith("_")] if inspect.isclass(value) else []
    methods = [getattr(value, n) for n in names]
    return [value, *(m for m in methods if inspect.isfunction(m) or inspect.ismethod(m))]


def _defaults(call: Callable) -> list[inspect.Parameter]:
    try:
        found = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):  # of C
        return []
    return [p for p in found if p.default is not p.empty and " at 0x" not in repr(p.default)]


def everything() -> list[str]:
    return [*parsed(), *settings(), *signatures()]


if __name__ == "__main__":
    FILE.write_text("\n".join(everything()) + "\n", encoding="utf-8")
