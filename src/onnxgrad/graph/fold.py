"""Folding of trivial nodes, and which operators pass a zero cotangent on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnxgrad.graph import infer

if TYPE_CHECKING:
    from onnxgrad.graph.builder import Builder


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


def _sum(op: Builder, *terms: ir.Value) -> ir.Value | None:
    if len(terms) == 1:
        return terms[0]
    return op.Add(*terms) if len(terms) == 2 else None


def _identity(op: Builder, x: ir.Value) -> ir.Value:
    return x


def _cast(op: Builder, x: ir.Value, *, to: Any) -> ir.Value | None:
    if x.dtype is not None and x.dtype == ir.DataType(to):
        return x
    if x.const_value is not None and not x.is_initializer() and x.const_value.size <= 16:
        return op.constant(x.const_value.numpy(), ir.DataType(to))
    return None


def _reshape(op: Builder, x: ir.Value, shape: ir.Value, **_: Any) -> ir.Value | None:
    return x if _is_own_shape(op, x, shape) else None


def _expand(op: Builder, x: ir.Value, shape: ir.Value) -> ir.Value | None:
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


def _shape(op: Builder, x: ir.Value, **_: Any) -> ir.Value | None:
    own = infer.dims(x)
    if _ or not infer.is_static(own):
        return None
    return op.constant(np.array(own, np.int64))


def _arrays(op: Builder, values: tuple[ir.Value, ...]) -> list[np.ndarray] | None:
    """Return the arrays of small integer constants, or None when one is computed."""
    arrays = [op.array(v) if v.dtype == ir.DataType.INT64 else None for v in values]
    return None if any(a is None or a.size > 64 for a in arrays) else arrays


def _gather(op: Builder, data: ir.Value, indices: ir.Value, *, axis: int = 0) -> ir.Value | None:
    arrays = _arrays(op, (data, indices))
    return op.constant(np.take(*arrays, axis=axis)) if arrays else None


def _concat(op: Builder, *parts: ir.Value, axis: int) -> ir.Value | None:
    if len(parts) == 1:
        return parts[0]
    arrays = _arrays(op, parts)
    return op.constant(np.concatenate(arrays, axis)) if arrays else None


def _on_integers(fold, function):
    """Fold a binary operator on integer constants, such as shapes, before `fold` is tried."""

    def folded(op: Builder, *values: ir.Value, **attributes: Any) -> ir.Value | None:
        arrays = _arrays(op, values)
        if arrays and not attributes:
            return op.constant(np.asarray(function(*arrays)))
        return fold(op, *values, **attributes) if fold else None

    return folded


FOLD = {
    "Add": _on_integers(_add, np.add),
    "Sub": _on_integers(_sub, np.subtract),
    "Mul": _on_integers(_mul, np.multiply),
    "Div": _div,
    "Neg": _neg,
    "Sum": _sum,
    "Identity": _identity,
    "Cast": _cast,
    "Reshape": _reshape,
    "Expand": _expand,
    "Transpose": _transpose,
    "ReduceSum": _reduce_sum,
    "Shape": _shape,
    "Gather": _gather,
    "Concat": _concat,
    "Equal": _on_integers(None, np.equal),
}


def _first(inputs: Any) -> tuple[int, ...]:
    return (0,)


def _every(inputs: Any) -> range:
    return range(len(inputs))


# Operator -> the inputs in which it is linear, so that a zero (None) there makes it zero.
LINEAR = {
    **dict.fromkeys("Add Sub Sum Mul MatMul".split(), _every),
    **dict.fromkeys(
        "Div Neg Identity Cast CastLike Reshape Expand Transpose Squeeze Unsqueeze ReduceSum "
        "ReduceMean Slice Pad Split Gather GatherElements GatherND Tile Trilu Flatten".split(),
        _first,
    ),
}
