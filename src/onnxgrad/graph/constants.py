"""Values that are constant without being written as constants: shapes, axes and sizes.

Exporters compute axes and shapes by chains of small integer nodes, whose inputs are constants or
the shapes of values with a known shape. Such a chain is evaluated here, once per value.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxgrad.graph import infer

LIMIT = 4096  # elements: enough for any shape, far below any weight


class Constants:
    """Evaluates values, remembering each. `variables` are initializers that must not be read."""

    def __init__(self, variables: Container[ir.Value]):
        self._variables = variables
        self._known: dict[ir.Value, np.ndarray | None] = {}

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
                self._known[stack.pop()] = self._evaluate(top)
        return self._known[value]

    def _sources(self, value: ir.Value) -> list[ir.Value]:
        node = value.producer()
        if value in self._variables or node is None or node.domain or node.op_type not in TABLE:
            return []
        if node.op_type == "Shape" and infer.is_static(infer.dims(node.inputs[0])):
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
        if node.op_type == "Shape":
            shape = infer.dims(node.inputs[0])
            known = shape is not None and shape[attributes.get("start", 0) : attributes.get("end")]
            return np.array(known, np.int64) if known and infer.is_static(known) else None
        arrays = [None if v is None else self._known.get(v) for v in node.inputs]
        missing = any(a is None and v is not None for a, v in zip(arrays, node.inputs, strict=True))
        if missing or any(a is not None and a.size > LIMIT for a in arrays):
            return None
        try:
            return np.asarray(TABLE[node.op_type](*arrays, **attributes))
        except (TypeError, ValueError, IndexError, KeyError):
            return None  # a form that the table does not know


def _axes(axes: np.ndarray | None) -> tuple[int, ...] | None:
    return None if axes is None else tuple(int(a) for a in axes.reshape(-1))


def _slice(x, starts, ends, axes=None, steps=None):
    index: list[Any] = [slice(None)] * x.ndim
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 0:
            raise ValueError("a negative step")
        index[int(axis)] = slice(int(start), int(end), int(step))
    return x[tuple(index)]


def _reshape(x, shape, allowzero=0):
    return x.reshape([x.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(shape)])


TABLE: dict[str, Callable[..., Any]] = {
    "Shape": lambda x: np.array(x.shape, np.int64),
    "Identity": lambda x: x,
    "Cast": lambda x, to, saturate=1: x.astype(ir.DataType(to).numpy()),
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Equal": np.equal,
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
    "Transpose": lambda x, perm=None: np.transpose(x, perm),
    "Expand": lambda x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape))),
    "ReduceProd": lambda x, axes=None, keepdims=1: np.prod(
        x, axis=_axes(None if axes is None else np.asarray(axes)), keepdims=bool(keepdims)
    ),
}  # fmt: skip
