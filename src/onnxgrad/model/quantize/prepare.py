"""From any model and settings to an integer model and the change that trains it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import onnx

from onnxgrad.errors import ConfigError
from onnxgrad.files.models import read_whole
from onnxgrad.model.quantize.calibrate import Feed, calibrate, feeds_of
from onnxgrad.model.quantize.fake import FakeQuantise
from onnxgrad.model.quantize.integers import is_quantised
from onnxgrad.model.quantize.settings import Quantize
from onnxgrad.notes import Note


def quantised(
    model: Any, settings: Quantize, feeds: Callable[[], Iterable[Feed]] | None = None
) -> tuple[onnx.ModelProto, FakeQuantise]:
    """Return an integer model and the change with which it is trained.

    `feeds()` are batches to calibrate on, inputs by name; without it `settings.data`. A model that
    is quantised already stays as it is. Raises ValueError where there are no data to calibrate on.
    """
    proto = read_whole(model)
    if is_quantised(proto):
        note = Note(
            "quantised",
            "model",
            "the model is quantised already: its types and what is quantised stay, and of the settings only "
            f"scales={settings.scales} counts",
            "give the float model to quantise it otherwise",
        )
        return proto, FakeQuantise(scales=settings.scales, notes=[note])
    made = calibrate(proto, settings, feeds or (lambda: _feeds(proto, settings)))
    return made.model, FakeQuantise(made.floats, settings.scales)


def _feeds(model: onnx.ModelProto, settings: Quantize) -> Iterable[Feed]:
    names = _inputs(model)
    if settings.data is None:
        raise ConfigError(
            "quantize needs rows to calibrate on: Quantize(..., data=x), an array or arrays by "
            f"input name ({', '.join(map(repr, names))})"
        )
    return feeds_of(settings.data, names, settings.rows)


def _inputs(model: onnx.ModelProto) -> list[str]:
    known = {t.name for t in model.graph.initializer}
    return [i.name for i in model.graph.input if i.name not in known]
