"""Types and shapes of the nodes that the builder emits: enough to fold, never wrong, often None.

A shape is a tuple whose entries are an int, a str (a dimension known by name) or None (unknown).
A shape that is None has an unknown rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

Dim = int | str | None
Dims = tuple[Dim, ...]

# fmt: off
_BOOL = {
    "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "And", "Or", "Xor",
    "IsNaN", "IsInf",
}
_INT64 = {
    "Shape", "Size", "NonZero", "ArgMax", "ArgMin",
}
_INDICES_SECOND = {"MaxPool", "MaxPoolTraining", "TopK"}
_SAME_SHAPE = {
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cast", "CastLike", "Ceil",
    "Clip", "Cos", "Cosh", "CumSum", "Elu", "Erf", "Exp", "EyeLike", "Floor", "Identity", "IsInf",
    "IsNaN",
    "LeakyRelu", "Log", "LogSoftmax", "Neg", "Not", "Reciprocal", "Relu", "Round",
    "ScatterElements", "ScatterND", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "Softplus",
    "Sqrt", "Tan", "Tanh", "Trilu", "ReluGrad", "SigmoidGrad", "TanhGrad", "LeakyReluGrad", "ClipGrad",
    "GeluGrad", "FastGeluGrad", "QuickGeluGrad", "SoftmaxGrad", "SoftmaxGrad_13",
    "LogSoftmaxGrad", "LogSoftmaxGrad_13",
}
_BROADCAST = {
    "Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "Mod", "Where", "And", "Or",
    "Xor", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
}
# fmt: on


def dims(value: ir.Value) -> Dims | None:
    """Return the shape of a value as a tuple of int, str and None; None for unknown rank."""
    shape = value.shape
    if shape is None:
        return None
    return tuple(d if isinstance(d, int) else d.value for d in shape)


def is_static(shape: Dims | None) -> bool:
    """Say whether every dimension is a number."""
    return shape is not None and all(isinstance(d, int) for d in shape)


def broadcast(shapes: Sequence[Dims | None]) -> Dims | None:
    """Return the shape that NumPy broadcasting gives.

    >>> broadcast([(3, 1, "N"), (4, 1)])
    (3, 4, 'N')
    """
    if not shapes or any(s is None for s in shapes):
        return None
    rank = max(len(s) for s in shapes)
    columns = zip(*[(1,) * (rank - len(s)) + s for s in shapes], strict=True)
    return tuple(_broadcast_dim(column) for column in columns)


def _broadcast_dim(column: Sequence[Dim]) -> Dim:
    wide = [d for d in column if d != 1]
    for d in wide:
        if isinstance(d, int):
            return d
    if not wide:
        return 1
    return wide[0] if all(d == wide[0] for d in wide) else None


def infer(op_type: str, inputs: Sequence[ir.Value | None], attributes: dict[str, Any]):
    """Return (dtype, shape) of the first output of a node, each None when unknown."""
    given = [v for v in inputs if v is not None]
    return _dtype(op_type, given, attributes), _shape(op_type, given, attributes)


def further_dtype(op_type: str, first: ir.DataType | None) -> ir.DataType | None:
    """Return the dtype of the outputs after the first, which is usually the same."""
    return ir.DataType.INT64 if op_type in _INDICES_SECOND else first


def _dtype(op_type: str, given: list[ir.Value], attributes: dict[str, Any]) -> ir.DataType | None:
    if op_type in _BOOL:
        return ir.DataType.BOOL
    if op_type in _INT64:
        return ir.DataType.INT64
    if op_type == "Cast":
        return ir.DataType(attributes["to"])
    if op_type == "ConstantOfShape":
        return attributes["value"].dtype if "value" in attributes else ir.DataType.FLOAT
    if op_type in ("Where", "CastLike"):
        return given[1].dtype
    if op_type in ("OneHot", "GatherGrad", "GatherNDGrad"):
        return given[2].dtype
    return given[0].dtype if given else None


def _shape(op_type: str, given: list[ir.Value], attributes: dict[str, Any]) -> Dims | None:
    shapes = [dims(v) for v in given]
    if op_type in _SAME_SHAPE:
        return shapes[0]
    if op_type in _BROADCAST:
        return broadcast(shapes)
    if op_type == "Shape":
        return None if shapes[0] is None else (len(shapes[0]),)
    if op_type == "Size":
        return ()
    if op_type in ("ConstantOfShape", "Reshape", "Expand"):
        return _from_vector(op_type, given[-1], shapes, attributes)
    if op_type == "Transpose" and shapes[0] is not None:
        perm = attributes.get("perm") or range(len(shapes[0]))[::-1]
        return tuple(shapes[0][p] for p in perm)
    if op_type == "MatMul" and None not in shapes and min(map(len, shapes)) >= 2:
        batch = broadcast([s[:-2] for s in shapes])
        return (*batch, shapes[0][-2], shapes[1][-1])
    if op_type.startswith("Reduce"):
        return _reduced(given, shapes[0], attributes)
    if op_type == "Concat":
        return _concatenated(shapes, attributes["axis"])
    if op_type == "Unsqueeze" and shapes[0] is not None:
        return _unsqueezed(shapes[0], given[1])
    if op_type == "Gather" and None not in shapes:
        axis = attributes.get("axis", 0) % len(shapes[0])
        return shapes[0][:axis] + shapes[1] + shapes[0][axis + 1 :]
    if op_type == "Split" and shapes[0] is not None:
        axis = attributes.get("axis", 0) % len(shapes[0])
        return tuple(None if i == axis else d for i, d in enumerate(shapes[0]))
    if op_type in ("Pad", "Slice", "Conv", "ConvTranspose", "Tile"):
        # The rank is enough. Weights have that of the data.
        known = [s for s in shapes[: 2 if "Conv" in op_type else 1] if s is not None]
        return (None,) * len(known[0]) if known else None
    return (None,) if op_type == "Range" else None


def _from_vector(op_type, target: ir.Value, shapes, attributes: dict[str, Any]) -> Dims | None:
    """The shape that a vector of ints asks for; a computed vector still tells the rank."""
    if target.const_value is None or target.is_graph_input():
        length = dims(target)
        known = length is not None and isinstance(length[0], int)
        return (None,) * length[0] if known and op_type != "Expand" else None
    numbers = tuple(int(n) for n in target.const_value.numpy())
    if op_type == "ConstantOfShape":
        return numbers
    if op_type == "Expand":
        return broadcast([shapes[0], numbers])
    allowzero = attributes.get("allowzero")
    own = shapes[0] or (None,) * len(numbers)
    return tuple(
        None if n == -1 else own[i] if n == 0 and not allowzero and i < len(own) else n
        for i, n in enumerate(numbers)
    )


def _concatenated(shapes: list[Dims | None], axis: int) -> Dims | None:
    if None in shapes:
        return None
    axis %= len(shapes[0])
    sizes = [s[axis] for s in shapes]
    total = sum(sizes) if all(isinstance(n, int) for n in sizes) else None
    return tuple(total if i == axis else d for i, d in enumerate(shapes[0]))


def _unsqueezed(shape: Dims, axes: ir.Value) -> Dims | None:
    if axes.const_value is None:
        return None
    rank = len(shape) + axes.const_value.size
    new = {int(a) % rank for a in axes.const_value.numpy()}
    rest = iter(shape)
    return tuple(1 if i in new else next(rest) for i in range(rank))


def _reduced(given: list[ir.Value], shape: Dims | None, attributes: dict[str, Any]) -> Dims | None:
    axes = attributes.get("axes")
    if axes is None and len(given) > 1:
        if given[1].const_value is None:
            return None
        axes = [int(a) for a in given[1].const_value.numpy()]
    if shape is None or not axes:
        return None
    axes = {a % len(shape) for a in axes}
    if attributes.get("keepdims", 1):
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)
