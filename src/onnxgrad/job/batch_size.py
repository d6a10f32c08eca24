"""A model that fixes its batch: free where a run shows that every row gets the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from onnxgrad.model.batch import FreeBatch
from onnxgrad.model.trainable import TrainableModel

if TYPE_CHECKING:
    import onnx

TOLERANCE = 1e-4  # of the largest number: other sizes of a product are summed in another order


def free_batch(
    model, changes: list, size: int, feeds: Mapping[str, np.ndarray]
) -> FreeBatch | None:
    """The change that frees the batch, or None where it would change what the model computes.

    `feeds` are some rows of the data, more than `size`.
    """
    change = FreeBatch(size)
    try:
        fixed = TrainableModel(model, changes=changes).source.proto
        freed = TrainableModel(model, changes=[*changes, change]).source.proto
        expected = _in_parts(fixed, feeds, size)
        found = _run(freed, feeds)
    except Exception:  # whatever the runtime says: the batch is not free then
        return None
    same = all(_alike(a, b) for a, b in zip(expected, found, strict=True))
    return change if same else None


def _in_parts(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], size: int) -> list:
    whole = max(len(a) for a in feeds.values() if a.ndim)
    rows = whole // size * size
    parts = [
        _run(model, {n: _part(a, start, size, whole) for n, a in feeds.items()})
        for start in range(0, rows, size)
    ]
    return [np.concatenate(values) for values in zip(*parts, strict=True)]


def _part(array: np.ndarray, start: int, size: int, rows: int) -> np.ndarray:
    """Some rows; what is the same in every batch as it is."""
    return array[start : start + size] if array.ndim and len(array) == rows else array


def _run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    known = {i.name for i in session.get_inputs()}
    return session.run(None, {n: np.ascontiguousarray(a) for n, a in feeds.items() if n in known})


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    size = float(np.abs(a).max(initial=0.0))
    return bool(np.allclose(a, b, rtol=0, atol=TOLERANCE * size + 1e-6, equal_nan=True))
