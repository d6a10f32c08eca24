"""What a user asks for: rank, scale, targets, variant."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from onnxgrad.errors import AdapterError

VARIANTS = ("lora", "rslora", "dora")


@dataclass(frozen=True)
class Lora:
    """Train a branch s·(X·A)·B beside chosen layers, and leave the layers as they are.

    r: the rank, the columns of A. alpha: the strength, s = alpha/r; default 2·r.
    dropout: the rate at which the input of the branch, and only it, is dropped in training.
    targets: names or globs of weights, nodes or modules ("q_proj", "*.query", "/encoder/*/MatMul"),
        or "all-linear"; by default query and value of attention, else every linear layer.
    variant: "lora"; "rslora", where s = alpha/√r; "dora", which also trains the length of each column
        of the weight.
    modules_to_save: names or globs of tensors that are trained in full beside the branches: a head.
    start: an adapter to begin from, a peft folder or an .onnx_adapter file.
    seed: of the numbers that A begins with.

        >>> Lora(r=4, variant="rslora").scale
        4.0
    """

    r: int = 8
    alpha: float | None = None
    dropout: float = 0.0
    targets: str | Iterable[str] = ()
    variant: str = "lora"
    modules_to_save: str | Iterable[str] = ()
    start: str | os.PathLike[str] | None = None
    seed: int = 0

    def __post_init__(self):
        for name in ("targets", "modules_to_save"):
            given = getattr(self, name)
            names = (given,) if isinstance(given, str) else tuple(given or ())
            if not all(isinstance(n, str) and n for n in names):
                raise AdapterError(f"lora: {name} is {given!r}, expected names or globs")
            object.__setattr__(self, name, names)
        if not isinstance(self.r, int) or isinstance(self.r, bool) or self.r < 1:
            raise AdapterError(f"lora: r is {self.r!r}, expected a rank of at least 1")
        if self.alpha is None:
            object.__setattr__(self, "alpha", 2 * self.r)
        if not (is_number(self.alpha) and self.alpha > 0):
            raise AdapterError(f"lora: alpha is {self.alpha!r}, expected a number above 0")
        if not (is_number(self.dropout) and 0 <= self.dropout < 1):
            raise AdapterError(f"lora: dropout is {self.dropout!r}, expected 0 <= rate < 1")
        if self.variant not in VARIANTS:
            raise AdapterError(
                f"lora: variant is {self.variant!r}, expected one of {', '.join(VARIANTS)}"
            )

    @property
    def scale(self) -> float:
        """The factor s of the branch."""
        return self.alpha / (math.sqrt(self.r) if self.variant == "rslora" else self.r)

    @classmethod
    def parse(cls, text: str) -> Lora:
        """Read settings as the command line writes them; lists have `|` between their parts.

        >>> Lora.parse("r=8,alpha=16,targets=q_proj|v_proj").targets
        ('q_proj', 'v_proj')
        """
        values: dict[str, Any] = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            key, equals, value = (x.strip() for x in part.partition("="))
            if key not in FIELDS or not equals or not value:
                raise AdapterError(
                    f"lora: {part!r} is not a setting, expected r=8 or another of {', '.join(FIELDS)}"
                )
            values[key] = _read(key, value)
        return cls(**values)

    def text(self) -> str:
        """Return the settings as `parse` reads them."""
        parts = []
        for name in FIELDS:
            value = getattr(self, name)
            if value in ((), None) or (name == "seed" and not value):
                continue
            shown = "|".join(value) if isinstance(value, tuple) else value
            parts.append(f"{name}={shown:g}" if isinstance(shown, float) else f"{name}={shown}")
        return ",".join(parts)


FIELDS = tuple(f.name for f in dataclasses.fields(Lora))


def is_number(value: Any) -> bool:
    """Say whether a value is a finite number that a float holds."""
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return plain and -sys.float_info.max <= value <= sys.float_info.max


def _read(key: str, value: str) -> Any:
    if key in ("targets", "modules_to_save"):
        return tuple(filter(None, (v.strip() for v in value.split("|"))))
    if key in ("variant", "start"):
        return value
    kind = int if key in ("r", "seed") else float
    try:
        return kind(value)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise AdapterError(f"lora: {key} is {value!r}, expected {wanted}") from None


def resolve(given: Any) -> Lora | None:
    """Return settings from what a Trainer takes: None, a Lora, a rank, or a line of text."""
    if given is None or isinstance(given, Lora):
        return given
    if isinstance(given, str):
        return Lora.parse(given)
    if isinstance(given, int) and not isinstance(given, bool):
        return Lora(r=given)
    raise AdapterError(
        f'lora is a {type(given).__name__}, expected Lora(r=8, ...), a rank or "r=8,alpha=16"'
    )
