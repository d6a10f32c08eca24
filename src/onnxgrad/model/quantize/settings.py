"""What a user asks for: `Quantize("int8", activations="uint8", exclude=["head*"])`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

WEIGHTS = ("int8", "uint8", "int4", "uint4", "int16")
ACTIVATIONS = ("int8", "uint8", "int16", "uint16")
METHODS = ("minmax", "percentile", "entropy")


@dataclass(frozen=True)
class Quantize:
    """How a model is quantised; the defaults are onnxruntime's.

    weights: "int8", "uint8", "int4", "uint4" or "int16".
    activations: "int8", "uint8", "int16" or "uint16".
    per_channel: a scale for each output channel of a weight, otherwise one for all of it.
    method: how ranges of activations follow from the data: "minmax", "percentile", "entropy".
    rows: how many rows of the data are looked at for that.
    learn_scales: train the scales too (LSQ), otherwise they stay as calibrated.
    op_types: only operators of these types; empty: all that onnxruntime quantises.
    exclude: names of nodes that stay in floating point; globs too.
    data: the rows to calibrate on, an array or a dict of arrays by input name. Training data are
        taken by the command line; a model that is quantised already needs none.

    >>> Quantize.parse("int8,activations=uint8,per_channel=no").activations
    'uint8'
    """

    weights: str = "int8"
    activations: str = "int8"
    per_channel: bool = True
    method: str = "minmax"
    rows: int = 512
    learn_scales: bool = True
    op_types: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    data: Any = dataclasses.field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name, known in (
            ("weights", WEIGHTS),
            ("activations", ACTIVATIONS),
            ("method", METHODS),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"quantize: {name} is {getattr(self, name)!r}, expected one of {', '.join(known)}"
                )
        if self.rows < 1:
            raise ValueError(f"quantize: rows is {self.rows!r}, expected at least 1")
        for name in ("op_types", "exclude"):
            object.__setattr__(self, name, _names(getattr(self, name)))

    @classmethod
    def parse(cls, text: str) -> Quantize:
        """Return what a flag means: the type of the weights, then settings, with commas.

        "w4a8" is short for "int4,activations=int8". Lists have a "+": `exclude=head+stem*`.
        """
        first, *rest = [part.strip() for part in text.split(",")]
        given: dict[str, Any] = dict(_SHORT.get(first, {"weights": first}))
        fields = {f.name: f for f in dataclasses.fields(cls) if f.name != "data"}
        for part in rest:
            name, equals, value = part.partition("=")
            if not equals or name not in fields:
                raise ValueError(
                    f"quantize has {part!r}, expected NAME=VALUE with one of {', '.join(fields)}"
                )
            given[name] = _value(name, value, fields[name].default)
        return cls(**given)


_SHORT = {
    "w8a8": {"weights": "int8", "activations": "int8"},
    "w4a8": {"weights": "int4", "activations": "int8"},
}


def _value(name: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text.lower() not in ("yes", "no", "true", "false", "1", "0"):
            raise ValueError(f"quantize: {name} is {text!r}, expected yes or no")
        return text.lower() in ("yes", "true", "1")
    if isinstance(default, int):
        if not text.isdecimal():
            raise ValueError(f"quantize: {name} is {text!r}, expected a number")
        return int(text)
    return text.split("+") if isinstance(default, tuple) else text


def _names(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
