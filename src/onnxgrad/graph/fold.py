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


def _shape(op: Builder, x: ir.Value, **_: Any) -> ir.Value | None:
    own = infer.dims(x)
    if _ or not infer.is_static(own):
        return None
    return op.constant(np.array(own, np.int64))


def _arrays(op: Builder, values: tuple[ir.Value, ...]) -> list[np.ndarray] | None:
    """Return the arrays of small integer constants, or None when one is computed."""
    whole = [v is not None and v.dtype == ir.DataType.INT64 for v in values]
    if not all(whole):
        return None
    arrays = [op.array(v) for v in values]
    return None if any(a is None or a.size > 64 for a in arrays) else arrays


def _gather(op: Builder, data: ir.Value, indices: ir.Value, *, axis: int = 0) -> ir.Value | None:
    arrays = _arrays(op, (data, indices))
    return op.constant(np.take(*arrays, axis=axis)) if arrays else None


def _concat(op: Builder, *parts: ir.Value, axis: int) -> ir.Value | None:
    if len(parts) == 1:
        return parts[0]
    arrays = _arrays(op, parts)
    return op.constant(np.concatenate(arrays, axis)) if arrays else None


def _size(op: Builder, x: ir.Value) -> ir.Value | None:
    own = infer.dims(x)
    return op.constant(np.array(np.prod(own), np.int64)) if infer.is_static(own) else None


def _slice(op: Builder, x: ir.Value, *rest: ir.Value) -> ir.Value | None:
    """Cut an integer constant along its only axis."""
    arrays = _arrays(op, (x, *rest))
    if not arrays or arrays[0].ndim != 1 or len(rest) < 3 or arrays[3].tolist() != [0]:
        return None
    step = int(arrays[4][0]) if len(rest) > 3 else 1
    return op.constant(arrays[0][int(arrays[1][0]) : int(arrays[2][0]) : step]) if step > 0 else None


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


def _unsqueeze(op: Builder, x: ir.Value, axes: ir.Value) -> ir.Value | None:
    arrays = _arrays(op, (x, axes))
    return op.constant(np.expand_dims(arrays[0], tuple(arrays[1]))) if arrays else None


def _squeeze(op: Builder, x: ir.Value, axes: ir.Value) -> ir.Value | None:
    arrays = _arrays(op, (x, axes))
    return op.constant(np.squeeze(arrays[0], tuple(arrays[1]))) if arrays else None


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
    "Div": _on_integers(_div, np.floor_divide),
    "Max": _on_integers(None, np.maximum),
    "Min": _on_integers(None, np.minimum),
    "Neg": _on_integers(_neg, np.negative),
    "Sum": _sum,
    "Identity": _identity,
    "Cast": _cast,
    "Reshape": _reshape,
    "Expand": _spread,
    "ConstantOfShape": _full,
    "Size": _size,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
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
