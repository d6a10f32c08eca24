"""Folding of trivial nodes, and which operators pass a zero cotangent on."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnxgrad.graph import infer
from onnxgrad.graph.constants import TABLE, evaluate

if TYPE_CHECKING:
    from onnxgrad.graph.builder import Builder


_WHOLE = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL)


def _is(op: Builder, value: ir.Value, number: float) -> bool:
    """Say whether a value is one of the builder's own scalar constants, equal to `number`."""
    if value.const_value is None or value.is_initializer() or value.is_graph_input():
        return False
    tensor = value.const_value
    return len(tensor.shape) == 0 and float(tensor.numpy()) == number


def _add(op: Builder, a: ir.Value, b: ir.Value) -> ir.Value | None:
    return a if _is(op, b, 0) else b if _is(op, a, 0) else None


def _sub(op: Builder, a: ir.Value, b: ir.Value) -> ir.Value | None:
    return a if _is(op, b, 0) else op.Neg(b) if _is(op, a, 0) else None


def _mul(op: Builder, a: ir.Value, b: ir.Value) -> ir.Value | None:
    if _is(op, b, 1):
        return a
    if _is(op, a, 1):
        return b
    return op.Neg(a) if _is(op, b, -1) else op.Neg(b) if _is(op, a, -1) else None


def _div(op: Builder, a: ir.Value, b: ir.Value) -> ir.Value | None:
    return a if _is(op, b, 1) else None


def _neg(op: Builder, x: ir.Value) -> ir.Value | None:
    node = x.producer()
    return node.inputs[0] if node is not None and node.op_type == "Neg" else None


def _sum(op: Builder, *terms: ir.Value) -> ir.Value:
    """One Add after the other: onnxruntime's Sum stays on one core, and takes twice as long on it."""
    return functools.reduce(op.Add, terms)


def _identity(op: Builder, x: ir.Value) -> ir.Value:
    return x


def _cast(op: Builder, x: ir.Value, *, to: Any) -> ir.Value | None:
    if x.dtype is not None and x.dtype == ir.DataType(to):
        return x
    array = op.array(x)
    if array is None or array.size > 16:
        return None
    return op.constant(array, ir.DataType(to))


def _reshape(op: Builder, x: ir.Value, shape: ir.Value, **_: Any) -> ir.Value | None:
    return x if _is_own_shape(op, x, shape) else None


def _is_own_shape(op: Builder, x: ir.Value, shape: ir.Value) -> bool:
    own = infer.dims(x)
    node = shape.producer()
    if node is not None and node.op_type == "Shape" and not node.attributes:
        return node.inputs[0] is x or op.same_shape(x, node.inputs[0])
    return infer.is_static(own) and op.ints(shape) == list(own) and 0 not in own


def _transpose(op: Builder, x: ir.Value, *, perm: Any = None) -> ir.Value | None:
    """Drop the identity, and join a transpose of a transpose."""
    if perm is None:
        return None
    perm = list(perm)
    if perm == list(range(len(perm))):
        return x
    node = x.producer()
    if node is None or node.op_type != "Transpose" or node.domain or "perm" not in node.attributes:
        return None
    inner = list(node.attributes["perm"].value)
    return op.Transpose(node.inputs[0], perm=[inner[p] for p in perm])


def _reduce_sum(op: Builder, x: ir.Value, axes: ir.Value | None = None, **kw: Any) -> Any:
    return x if axes is not None and op.ints(axes) == [] else None


def _full(op: Builder, shape: ir.Value, *, value: Any = None) -> ir.Value | None:
    if value is None or op.ints(shape) != []:
        return None
    return op.constant(value.numpy().reshape(()), value.dtype)


def _spread(op: Builder, x: ir.Value, shape: ir.Value) -> ir.Value | None:
    """Expand: drop the idle one; a number repeated is a filled tensor."""
    if _is_own_shape(op, x, shape):
        return x
    if x.const_value is None or x.is_initializer() or len(x.const_value.shape):
        return None
    return op.full(shape, float(x.const_value.numpy()), x.dtype)


def _concat(op: Builder, *parts: ir.Value, axis: int) -> ir.Value | None:
    return parts[0] if len(parts) == 1 else None


FOLD = {
    "Add": _add,
    "Sub": _sub,
    "Mul": _mul,
    "Div": _div,
    "Neg": _neg,
    "Sum": _sum,
    "Identity": _identity,
    "Cast": _cast,
    "Concat": _concat,
    "Reshape": _reshape,
    "Expand": _spread,
    "ConstantOfShape": _full,
    "Transpose": _transpose,
    "ReduceSum": _reduce_sum,
}


def fold_integers(op: Builder, op_type: str, values: list, attributes: dict) -> ir.Value | None:
    """Compute a node on integer or boolean constants, such as shapes, when the graph is built."""
    if op_type not in TABLE:
        return None
    if op_type in ("Shape", "Size"):
        own = infer.dims(values[0])
        if not infer.is_static(own) or attributes:
            return None
        result = np.array(own if op_type == "Shape" else math.prod(own), np.int64)
        return op.constant(result)
    if not all(v is None or v.dtype in _WHOLE for v in values):
        return None
    arrays = [None if v is None else op.array(v) for v in values]
    if any(a is None and v is not None for a, v in zip(arrays, values, strict=True)):
        return None
    result = evaluate(op_type, arrays, attributes)
    return op.constant(result) if result is not None and result.dtype.kind in "ib" else None


def _first(inputs: Any) -> tuple[int, ...]:
    return (0,)


def _every(inputs: Any) -> range:
    return range(len(inputs))


# Operator -> the inputs in which it is linear, so that a zero (None) there makes it zero.
# fmt: off
LINEAR = {
    **dict.fromkeys((
        "Add", "Sub", "Sum", "Mul", "MatMul",
    ), _every),
    **dict.fromkeys((
        "Div", "Neg", "Identity", "Cast", "CastLike", "Reshape", "Expand", "Transpose",
        "Squeeze", "Unsqueeze", "ReduceSum", "ReduceMean", "Slice", "Pad", "Split", "Gather",
        "GatherElements", "GatherND", "Tile", "Trilu", "Flatten",
    ), _first),
}
# fmt: on
