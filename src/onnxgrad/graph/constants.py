"""Values that are constant without being written as constants: shapes, axes and sizes.

Exporters compute axes and shapes by chains of small integer nodes, whose inputs are constants or
the shapes of values with a known shape. Such a chain is evaluated here, once per value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxgrad.graph import infer

LARGEST = 1 << 20  # elements that are computed here at all
LIMIT = 4096  # elements: enough for any shape, far below any weight


class Constants:
    """Evaluates values, remembering each. `variables` are initializers that must not be read."""

    def __init__(self, variables: Container[ir.Value]):
        self._variables = variables
        self._known: dict[ir.Value, Any] = {}

    def array(self, value: ir.Value) -> np.ndarray | None:
        """Return what a value holds at every run, or None when that depends on the run."""
        stack = [value]
        while stack:  # a stack, not recursion: chains may be long
            top = stack[-1]
            if top in self._known:
                stack.pop()
                continue
            waits = [v for v in self._sources(top) if v not in self._known]
            if waits:
                stack.extend(waits)
            else:
                found = self._evaluate(top)
                self._known[stack.pop()] = _NO if found is None else found
        found = self._known[value]
        return None if found is _NO or found.dtype == object else found

    def _sources(self, value: ir.Value) -> list[ir.Value]:
        node = value.producer()
        if value in self._variables or node is None or node.domain or node.op_type not in TABLE:
            return []
        if node.op_type in ("Shape", "Size"):
            return []
        return [v for v in node.inputs if v is not None and v is not value]

    def _evaluate(self, value: ir.Value) -> np.ndarray | None:
        if value in self._variables or value.is_graph_input():
            return None
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is not None:
            return tensor.numpy()
        node = value.producer()
        if node is None or node.domain or node.op_type not in TABLE:
            return None
        attributes = {k: a.value for k, a in node.attributes.items()}
        if node.op_type in ("Shape", "Size"):
            return _shape(infer.dims(node.inputs[0]), node.op_type, **attributes)
        arrays = [None if v is None else self._known.get(v, _NO) for v in node.inputs]
        return evaluate(node.op_type, arrays, attributes)


_NO = object()
# What a node of constants would make, in elements; the others make no more than their inputs multiplied.
_SIZES: dict[str, Callable[..., float]] = {
    "ConstantOfShape": lambda shape: math.prod(map(int, shape.reshape(-1))),
    "Expand": lambda x, shape: (
        math.prod(max(1, int(n)) for n in shape.reshape(-1)) * max(1, x.size)
    ),
    "Range": lambda start, limit, delta: abs((float(limit) - float(start)) / float(delta)),
}
_PICK = ["Identity", "Gather", "Concat", "Unsqueeze", "Squeeze", "Reshape", "Slice", "Transpose"]


def evaluate(op_type: str, arrays: list[Any], attributes: dict[str, Any]) -> np.ndarray | None:
    """Compute a node of TABLE on arrays, or return None where it cannot be.

    A dimension that is not known is None inside an array of objects: picking around it works,
    computing with it does not.
    """
    if any(a is _NO or (a is not None and a.size > LIMIT) for a in arrays):
        return None
    partial = any(a is not None and a.dtype == object for a in arrays)
    if partial and op_type not in _PICK:
        return None
    try:
        if op_type in _SIZES and _SIZES[op_type](*arrays) > LARGEST:
            return None
        with np.errstate(all="raise"):  # a division by zero has no result
            result = np.asarray(TABLE[op_type](*arrays, **attributes))
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, MemoryError):
        return None  # a form that the table does not know
    if result.dtype == object and all(n is not None for n in result.reshape(-1)):
        return result.astype(np.int64)
    return result


def _shape(shape: infer.Dims | None, op_type: str, start: int = 0, end: int | None = None):
    if shape is None:
        return None
    sizes = [n if isinstance(n, int) else None for n in shape[start:end]]
    if None not in sizes:
        sizes = np.array(sizes, np.int64)
        return sizes if op_type == "Shape" else np.array(sizes.prod(), np.int64)
    return np.array(sizes, object) if op_type == "Shape" else None


def _truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """ONNX divides integers towards zero, NumPy downwards."""
    if a.dtype.kind != "i":
        raise TypeError("only integers are divided here")
    return np.where((a < 0) != (b < 0), -(np.abs(a) // np.abs(b)), np.abs(a) // np.abs(b))


def _axes(axes: np.ndarray | None) -> tuple[int, ...] | None:
    return None if axes is None else tuple(int(a) for a in axes.reshape(-1))


def _slice(x, starts, ends, axes=None, steps=None):
    index: list[Any] = [slice(None)] * x.ndim
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index[int(axis)] = _span(x.shape[int(axis)], int(start), int(end), int(step))
    return x[tuple(index)]


def _span(size: int, start: int, end: int, step: int) -> slice:
    """ONNX's slice as Python's: towards the front, an end before the first element is not an index."""
    if step > 0:
        return slice(start, end, step)
    start, end = (i + size if i < 0 else i for i in (start, end))
    return slice(max(min(start, size - 1), 0), None if end < 0 else end, step)


def _scatter(x, indices, updates, axis=0):
    if x.ndim != 1:
        raise ValueError("only vectors are scattered here")
    result = x.copy()
    result[indices] = updates
    return result


def _reshape(x, shape, allowzero=0):
    return x.reshape([x.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(shape)])


TABLE: dict[str, Callable[..., Any]] = {
    "Shape": lambda x: np.array(x.shape, np.int64),
    "Size": lambda x: np.array(x.size, np.int64),
    "Identity": lambda x: x,
    "Cast": lambda x, to, saturate=1: x.astype(ir.DataType(to).numpy()),
    "CastLike": lambda x, like, saturate=1: x.astype(like.dtype),
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _truncated,
    "Mod": lambda a, b, fmod=0: np.fmod(a, b) if fmod else np.mod(a, b),
    "Neg": np.negative,
    "Max": lambda *x: np.max(np.broadcast_arrays(*x), 0),
    "Min": lambda *x: np.min(np.broadcast_arrays(*x), 0),
    "Equal": np.equal,
    "Less": np.less,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "And": np.logical_and,
    "Not": np.logical_not,
    "Where": np.where,
    "Gather": lambda x, indices, axis=0: np.take(x, indices, axis=axis),
    "Concat": lambda *parts, axis: np.concatenate(parts, axis),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, _axes(axes)),
    "Squeeze": lambda x, axes=None: np.squeeze(x, _axes(axes)),
    "Reshape": _reshape,
    "Slice": _slice,
    "ConstantOfShape": lambda shape, value=None: np.full(
        shape, 0.0 if value is None else value.numpy().item(),
        np.float32 if value is None else value.numpy().dtype,
    ),
    "Range": lambda start, limit, delta: np.arange(start, limit, delta, dtype=start.dtype),
    "ScatterElements": _scatter,
    "Transpose": lambda x, perm=None: np.transpose(x, perm),
    "Expand": lambda x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape))),
    "NonZero": lambda x: np.array(np.nonzero(x), np.int64),
    "ReduceProd": lambda x, axes=None, keepdims=1: np.prod(
        x, axis=_axes(None if axes is None else np.asarray(axes)), keepdims=bool(keepdims)
    ),
}  # fmt: skip
