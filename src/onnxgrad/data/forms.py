"""How raw things become what a model takes: pictures, sounds, texts, and inputs that are the same in every batch.

Training writes it into the model's metadata, as JSON, so that `eval` and `predict` need not be told.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxgrad.data.images import PictureForm
from onnxgrad.data.sounds import SoundForm
from onnxgrad.data.texts import TextForm
from onnxgrad.data.tokenizer import Tokenizer
from onnxgrad.errors import DataError
from onnxgrad.files.text import parse_json

KEY = "onnxgrad.inputs"  # of the metadata


@dataclass(frozen=True)
class Forms:
    """`constants` are numbers by input; `origin` says of a kind who said it, where it was not a flag.

    `tokenizer` reads the one that `texts` names.
    """

    pictures: PictureForm = field(default_factory=PictureForm)
    sounds: SoundForm = field(default_factory=SoundForm)
    texts: TextForm = field(default_factory=TextForm)
    constants: Mapping[str, float] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict)
    tokenizer: Callable[[], Tokenizer] | None = None

    def to_json(self, kinds: set[str]) -> str:
        """What is worth keeping of `kinds`, as JSON."""
        made = {kind: _said(getattr(self, kind)) for kind in sorted(kinds)}
        if self.constants:
            made["constants"] = dict(self.constants)
        return json.dumps(made)

    @classmethod
    def from_json(cls, text: str) -> Forms:
        """What a model's metadata say. Raises DataError where that cannot be."""
        try:
            found = parse_json(text)
            kinds = {"pictures": PictureForm, "sounds": SoundForm, "texts": TextForm}
            made = [_read(kind, found.get(name, {})).checked() for name, kind in kinds.items()]
            constants = {str(k): float(v) for k, v in found.get("constants", {}).items()}
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise DataError(f"the model's metadata {KEY!r} are damaged: {error}") from error
        return cls(*made, constants)


def _said(form: Any) -> dict[str, Any]:
    return {k: v for k, v in dataclasses.asdict(form).items() if v not in ((), None, "")}


# What a field may hold, by the type that its annotation begins with.
_KINDS = {"tuple[int": (int,), "tuple[float": (int, float), "tuple[str": (str,)}


def _read(kind: type, found: Mapping[str, Any]) -> Any:
    if not isinstance(found, dict):
        raise ValueError(f"{kind.__name__} is {found!r:.60}")
    made = {}
    for each in dataclasses.fields(kind):
        if each.name not in found:
            continue
        value = found[each.name]
        listed = next((of for start, of in _KINDS.items() if each.type.startswith(start)), None)
        if listed is not None:
            if not isinstance(value, list) or not all(isinstance(v, listed) for v in value):
                raise ValueError(f"{each.name} is {value!r:.60}")
            value = tuple(value)
        elif type(value).__name__ not in each.type and not (
            "float" in each.type and isinstance(value, int)
        ):
            raise ValueError(f"{each.name} is {value!r:.60}")
        made[each.name] = value
    return kind(**made)


@dataclass
class ConstantFeed:
    """An input that is the same number in every batch: a scalar, or filled, with the rows where they belong."""

    dims: tuple[int | None, ...]  # None is the number of rows
    number: float
    dtype: np.dtype
    columns: list[str] = field(default_factory=list)

    def __call__(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        rows = len(next(iter(arrays.values())))
        return np.full([rows if d is None else d for d in self.dims], self.number, self.dtype)
