"""Inputs for a model: the user's, or random ones of the right shapes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnxgrad.errors import ModelError

BATCH, OTHER = 2, 8  # sizes for dims that the model leaves open


def random_feeds(model: ir.Model, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Normal numbers for floats, 0 and 1 for integers (every table has those rows), true for booleans."""
    sizes: dict[str, int] = {}
    return {
        v.name: _random(v, sizes, rng)
        for v in model.graph.inputs
        if v.name not in model.graph.initializers
    }


def _random(value: ir.Value, sizes: dict[str, int], rng: np.random.Generator) -> np.ndarray:
    if value.shape is None or value.dtype is None:
        raise ModelError(f"input {value.name!r} has no shape or type: give inputs with --data")
    shape = []
    for axis, dim in enumerate(value.shape):
        if not isinstance(dim, int):
            default = BATCH if axis == 0 else OTHER
            dim = sizes.setdefault(str(dim.value), default) if dim.value else default
        shape.append(dim)
    dtype = value.dtype.numpy()
    if value.dtype.is_floating_point():
        return rng.normal(0, 1, shape).astype(dtype)
    if dtype == np.bool_:
        return np.ones(shape, np.bool_)
    return rng.integers(0, 2, shape).astype(dtype)


def check_feeds(
    arrays: Mapping[str, np.ndarray], model: ir.Model, source: str
) -> dict[str, np.ndarray]:
    feeds = {}
    for value in model.graph.inputs:
        if value.name in model.graph.initializers:
            continue
        if value.name not in arrays:
            listed = ", ".join(sorted(arrays)) or "nothing"
            raise ModelError(
                f"{source} has no array {value.name!r} for that input of the model; it has {listed}"
            )
        array = arrays[value.name]
        _check_values(array, value.name, source)
        feeds[value.name] = np.asarray(array, dtype=value.dtype.numpy() if value.dtype else None)
    return feeds


def _check_values(array: np.ndarray, name: str, source: str) -> None:
    """A verdict needs numbers."""
    if array.size == 0:
        raise ModelError(f"{source}: {name!r} has shape {list(array.shape)}, expected some numbers")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        at = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
        raise ModelError(f"{source}: {name!r} holds a number that is not finite at {at}")
