"""What a user asks for: `Quantize("w4a8", nodes={"head*": "float", "conv1": "int8"}, scales="observed")`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

FLOAT = "float"
WEIGHTS = ("int8", "uint8", "int4", "uint4", "int16")
ACTIVATIONS = ("int8", "uint8", "int16", "uint16", FLOAT)
METHODS = ("minmax", "percentile", "entropy")
SCALES = ("learned", "observed", "fixed")
# The names that onnxruntime.quantization has for the same.
ALIASES = {
    "weight_type": "weights", "activation_type": "activations", "calibrate_method": "method",
    "op_types_to_quantize": "op_types", "nodes_to_exclude": "exclude", "nodes_to_quantize": "only",
    "block_size": "block",
}  # fmt: skip


@dataclass(frozen=True)
class Precision:
    """Types of a node: of its weights (None: it stays float), of what it reads, and blocks of its weights."""

    weights: str | None
    activations: str
    block: int = 0

    @classmethod
    def parse(cls, word: str, activations: str = "int8", block: int = 0) -> Precision:
        """Return what a word means: "float", a type of weights, or both as "w4a8", "w4b32a8", "w4".

        >>> Precision.parse("w4b32")
        Precision(weights='int4', activations='float', block=32)
        """
        if word == FLOAT:
            return cls(None, FLOAT)
        if word in WEIGHTS:
            return cls(word, activations, block)
        found = re.fullmatch(r"w(4|8|16)(?:b(\d+))?(?:a(8|16))?", word)
        if found is None:
            known = ", ".join((*WEIGHTS, FLOAT))
            raise ValueError(
                f"quantize: {word!r} is not a precision, expected one of {known}, or as w4a8, w4b32a8, w4"
            )
        bits, given, read = found.groups()
        signed = "u" if activations.startswith("u") and read else ""
        return cls(
            f"int{bits}", f"{signed}int{read}" if read else FLOAT, int(given) if given else block
        )


@dataclass(frozen=True)
class Quantize:
    """How a model is quantised; the defaults are onnxruntime's.

    weights: "int8", "uint8", "int4", "uint4", "int16"; or with activations and blocks, "w4b32a8".
    activations: "int8", "uint8", "int16", "uint16"; "float" quantises weights alone.
    per_channel: a scale for each output channel of a weight, otherwise one for all of it.
    block: a scale for this many weights of a row of a MatMul or Gemm (32, 64 …); 0: no blocks.
    scales: "learned" with the weights (LSQ); "observed" in the first epoch, fixed from then on;
        "fixed" as calibrated.
    method: how ranges of activations follow from the data: "minmax", "percentile", "entropy".
    percentile: the share, of a hundred, that `method="percentile"` covers.
    rows: how many rows of the data are looked at for that.
    op_types: only operators of these types; empty: all that onnxruntime quantises.
    exclude: names of nodes that stay in floating point; globs too.
    only: names of the nodes that are quantised; empty: all.
    nodes: other precisions by name or glob of nodes, {"head*": "float", "conv1": "w4a8"}, or the same
        as text, "head*=float,conv1=w4a8". The first that fits counts.
    data: the rows to calibrate on, an array or a dict of arrays by input name. Training data are
        taken by the command line; a model that is quantised already needs none, nor do weights alone.

    >>> Quantize.parse("w4b32a8,scales=observed").block
    32
    """

    weights: str = "int8"
    activations: str = "int8"
    per_channel: bool = True
    block: int = 0
    scales: str = "learned"
    method: str = "minmax"
    percentile: float = 99.999
    rows: int = 512
    op_types: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    nodes: Any = ()
    data: Any = dataclasses.field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        word = Precision.parse(self.weights, self.activations, self.block)
        if self.weights not in WEIGHTS:  # "w4a8" says more than one thing
            for name in ("weights", "activations", "block"):
                object.__setattr__(self, name, getattr(word, name))
        for name, known in (
            ("weights", WEIGHTS),
            ("activations", ACTIVATIONS),
            ("scales", SCALES),
            ("method", METHODS),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"quantize: {name} is {getattr(self, name)!r}, expected one of {', '.join(known)}"
                )
        if self.rows < 1:
            raise ValueError(f"quantize: rows is {self.rows!r}, expected at least 1")
        if self.block < 0 or self.block == 1:
            raise ValueError(f"quantize: block is {self.block!r}, expected 0 or at least 2")
        if not 0 < self.percentile <= 100:
            raise ValueError(f"quantize: percentile is {self.percentile!r}, expected 0 to 100")
        for name in ("op_types", "exclude", "only"):
            object.__setattr__(self, name, _names(getattr(self, name)))
        object.__setattr__(self, "nodes", self._nodes())

    def _nodes(self) -> tuple[tuple[str, Precision], ...]:
        given = _pairs(self.nodes) if isinstance(self.nodes, str) else dict(self.nodes).items()
        return tuple((pattern, self._precision(of)) for pattern, of in given)

    def _precision(self, of: Any) -> Precision:
        if isinstance(of, Precision):
            return of
        return Precision.parse(of, self.activations, self.block)

    @property
    def precision(self) -> Precision:
        """What a node has that `nodes` does not name."""
        return Precision(self.weights, self.activations, self.block)

    def on(self, data: Any) -> Quantize:
        """Return these settings with rows to calibrate on."""
        return dataclasses.replace(self, data=data)

    @classmethod
    def parse(cls, text: str, **more: Any) -> Quantize:
        """Return what a flag means: the type of the weights, then settings, with commas.

        "w4a8" is short for "int4,activations=int8". Lists have a "+": `exclude=head+stem*`. The names
        of onnxruntime.quantization are understood too. `more` are settings that are not in the text.
        """
        first, *rest = [part.strip() for part in text.split(",")]
        given: dict[str, Any] = {"weights": first}
        fields = {f.name: f for f in dataclasses.fields(cls) if f.name not in ("data", "nodes")}
        for part in rest:
            name, equals, value = part.partition("=")
            name = ALIASES.get(name, name)
            if not equals or name not in fields:
                raise ValueError(
                    f"quantize has {part!r}, expected NAME=VALUE with one of {', '.join(fields)}"
                )
            given[name] = _value(name, value, fields[name].default)
        return cls(**given, **more)


def _value(name: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text.lower() not in ("yes", "no", "true", "false", "1", "0"):
            raise ValueError(f"quantize: {name} is {text!r}, expected yes or no")
        return text.lower() in ("yes", "true", "1")
    if isinstance(default, (int, float)):
        try:
            return type(default)(text)
        except ValueError:
            raise ValueError(f"quantize: {name} is {text!r}, expected a number") from None
    return text.split("+") if isinstance(default, tuple) else text


def _pairs(text: str) -> Iterable[tuple[str, str]]:
    """Yield the patterns and precisions of "head*=float,conv1=w4a8"."""
    for part in filter(None, (p.strip() for p in text.split(","))):
        pattern, equals, word = part.rpartition("=")
        if not equals or not pattern:
            raise ValueError(f"quantize: nodes has {part!r}, expected NODE=PRECISION")
        yield pattern, word


def _names(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
