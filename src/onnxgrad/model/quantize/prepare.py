"""From any model and settings to an integer model and the change that trains it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx

from onnxgrad.files.models import read_whole
from onnxgrad.model.quantize.calibrate import calibrate, feeds_of
from onnxgrad.model.quantize.fake import FakeQuantise
from onnxgrad.model.quantize.integers import is_quantised
from onnxgrad.model.quantize.settings import Quantize


def quantised(
    model: Any, settings: Quantize, feeds: Iterable[Mapping[str, np.ndarray]] | None = None
) -> tuple[onnx.ModelProto, FakeQuantise]:
    """Return an integer model and the change with which it is trained.

    `feeds` are batches to calibrate on, inputs by name; without them `settings.data`. A model that
    is quantised already stays as it is. Raises ValueError where there are no data to calibrate on.
    """
    proto = read_whole(model)
    if is_quantised(proto):
        return proto, FakeQuantise(learn_scales=settings.learn_scales)
    if feeds is None:
        names = _inputs(proto)
        if settings.data is None:
            raise ValueError(
                "quantize needs rows to calibrate on: Quantize(..., data=x), an array or arrays by "
                f"input name ({', '.join(map(repr, names))})"
            )
        feeds = feeds_of(settings.data, names, settings.rows)
    made = calibrate(proto, settings, feeds)
    return made.model, FakeQuantise(made.floats, settings.learn_scales)


def _inputs(model: onnx.ModelProto) -> list[str]:
    known = {t.name for t in model.graph.initializer}
    return [i.name for i in model.graph.input if i.name not in known]
