"""The inputs of one step, as a Module is called with them, matched with the model's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from onnxgrad.dropin.old.training_model import ArtifactModel
from onnxgrad.errors import DropInError


class Batch:
    """Arrays or OrtValues by name; `of_ort_values` says that the caller gave OrtValues only."""

    def __init__(self, given: Sequence[Any], model: ArtifactModel):
        if len(given) != len(model.inputs):
            raise DropInError(
                f"the Module was called with {len(given)} inputs, expected {len(model.inputs)}: "
                f"{', '.join(model.inputs)}"
            )
        self.of_ort_values = not any(isinstance(x, np.ndarray) for x in given)
        convert = _ort_value if self.of_ort_values else _array
        self.values = {n: convert(n, x, model) for n, x in zip(model.inputs, given, strict=True)}

    @property
    def has_text(self) -> bool:
        """Whether an input holds strings, which cannot be bound to memory."""
        return any(
            isinstance(v, np.ndarray) and v.dtype.kind in "OUS" for v in self.values.values()
        )


def _ort_value(name: str, value: Any, model: ArtifactModel) -> Any:
    if not hasattr(value, "_ortvalue"):
        raise AttributeError(
            f"input {name!r} is a {type(value).__name__}, expected a NumPy array or an OrtValue"
        )
    _expect_shape(name, tuple(value.shape()), model)
    return value


def _array(name: str, value: Any, model: ArtifactModel) -> np.ndarray:
    if hasattr(value, "_ortvalue"):
        value = value.numpy()
    kind, _ = model.shapes[name]
    array = value
    if kind == TensorProto.STRING:
        array = np.asarray(value)
    else:
        expected = np.dtype(helper.tensor_dtype_to_np_dtype(kind))
        if not isinstance(value, np.ndarray):
            array = np.asarray(value, expected)
        if array.dtype != expected:
            raise DropInError(f"input {name!r} is {array.dtype}, expected {expected}")
        array = np.ascontiguousarray(array).reshape(array.shape)
    _expect_shape(name, array.shape, model)
    return array


def _expect_shape(name: str, shape: tuple, model: ArtifactModel) -> None:
    _, dims = model.shapes[name]
    if dims is None:
        return
    fits = len(dims) == len(shape) and all(
        d is None or d == s for d, s in zip(dims, shape, strict=True)
    )
    if not fits:
        expected = [("any" if d is None else d) for d in dims]
        raise DropInError(f"input {name!r} has shape {list(shape)}, expected {expected}")
