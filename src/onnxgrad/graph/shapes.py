"""The builder's words for shapes: known when the graph is built, else computed when it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxgrad.graph import infer


class ShapeUnknown(Exception):
    """A rule needs the rank of a value, or a constant, that the model does not tell."""


class Shapes:
    """Mixed into the builder, whose nodes it writes."""

    def dims(self, value: ir.Value) -> infer.Dims | None:
        """Return the shape as far as it is known: ints, names, None; None for an unknown rank."""
        return infer.dims(value)

    def rank(self, value: ir.Value) -> int:
        """Return the rank. Raises ShapeUnknown when the model does not tell it."""
        shape = infer.dims(value)
        if shape is None:
            raise ShapeUnknown(f"the rank of {value.name!r} is unknown")
        return len(shape)

    def shape(self, value: ir.Value) -> ir.Value:
        """Return the shape as an int64 vector: a constant when it is static, else a Shape node."""
        shape = infer.dims(value)
        return self.constant(list(shape)) if infer.is_static(shape) else self.Shape(value)

    def dim(self, value: ir.Value, axis: int) -> ir.Value:
        """Return one dimension as an int64 vector of length 1."""
        shape = infer.dims(value)
        if shape is not None and isinstance(shape[axis], int):
            return self.constant([shape[axis]])
        return self.Gather(self.Shape(value), self.constant([axis]), axis=0)

    def same_shape(self, a: ir.Value, b: ir.Value) -> bool:
        """Say whether two values surely have the same shape."""
        x, y = infer.dims(a), infer.dims(b)
        return x is not None and x == y and None not in x

    def full(self, shape: Any, number: float, dtype: ir.DataType) -> ir.Value:
        """Return a tensor of one number, of a shape that may be computed."""
        value = ir.tensor(np.array([number], dtype.numpy()), dtype=dtype)
        shape = shape if isinstance(shape, ir.Value) else self.constant(shape)
        return self.ConstantOfShape(shape, value=value)

    def full_like(self, value: ir.Value, number: float) -> ir.Value:
        """Return a tensor of the shape and type of `value`, filled with one number."""
        return _of(self.full(self.shape(value), number, self.dtype(value)), value)

    def dtype(self, value: ir.Value) -> ir.DataType:
        """Return the element type. Raises ShapeUnknown when the model does not tell it."""
        if value.dtype is None:
            raise ShapeUnknown(f"the type of {value.name!r} is unknown")
        return value.dtype

    def range(self, size: ir.Value) -> ir.Value:
        """Return 0, 1, …, size - 1 as int64; `size` is a vector of length 1, as `dim` gives it."""
        return self.Range(0, self.Squeeze(size, [0]), 1)

    def number(self, value: ir.Value, like: ir.Value) -> ir.Value:
        """Return an integer tensor, such as a count, in the type of `like`."""
        return self.Cast(value, to=self.dtype(like))

    def count(self, many: ir.Value, few: ir.Value) -> ir.Value:
        """Return how many elements of `many` there are for each of `few`, in the type of `many`.

        A batch of no samples has none of either: the count is then 0, and divides nothing.
        """
        return self.number(self.Div(self.Size(many), self.Max(self.Size(few), 1)), many)

    def reshape_like(self, value: ir.Value | None, like: ir.Value) -> ir.Value | None:
        """Return `value` in the shape of `like`."""
        if value is None or self.same_shape(value, like):
            return value
        return _of(self.Reshape(value, self.shape(like), allowzero=self._allowzero(like)), like)

    def _allowzero(self, like: ir.Value) -> int | None:
        # A dimension of size 0 in a computed shape means 0, not "copy this one from the input".
        return None if infer.is_static(infer.dims(like)) and 0 not in infer.dims(like) else 1

    def expand_like(self, value: ir.Value | None, like: ir.Value) -> ir.Value | None:
        """Return `value` broadcast to the shape of `like`."""
        if value is None or self.same_shape(value, like):
            return value
        return _of(self.Expand(value, self.shape(like)), like)

    def crop_like(self, value: ir.Value, like: ir.Value, axes: list[int]) -> ir.Value:
        """Return the first part of `value` along `axes`, as long as `like` is there."""
        if self.same_shape(value, like):
            return value
        ends = self.Concat(*[self.dim(like, a) for a in axes], axis=0)
        return self.Slice(value, [0] * len(axes), ends, axes)

    def sum_to(self, value: ir.Value | None, like: ir.Value) -> ir.Value | None:
        """Undo broadcasting: sum `value` over the axes along which `like` was repeated."""
        if value is None or self.same_shape(value, like):
            return value
        wide, narrow = infer.dims(value), infer.dims(like)
        if wide is None or narrow is None:
            return self._sum_to_computed(value, like)
        narrow = (1,) * (len(wide) - len(narrow)) + narrow
        pairs = list(zip(wide, narrow, strict=True))
        # Open: `like` may be 1 where `value` is not, and only the run knows.
        if any(n is None or (isinstance(n, str) and w not in (1, n)) for w, n in pairs):
            return self._sum_to_computed(value, like)
        axes = [i for i, (w, n) in enumerate(pairs) if n == 1 and w != 1]
        lead = len(wide) - len(infer.dims(like))
        if axes == list(range(lead)):
            return self.ReduceSum(value, axes, keepdims=0) if axes else value
        return self.reshape_like(self.ReduceSum(value, axes, keepdims=1) if axes else value, like)

    def _sum_to_computed(self, value: ir.Value, like: ir.Value) -> ir.Value:
        wide, narrow = self.Shape(value), self.Shape(like)
        lead = self.Sub(self.Shape(wide), self.Shape(narrow))
        padded = self.Concat(self.full(lead, 1, ir.DataType.INT64), narrow, axis=0)
        axes = self.Squeeze(self.NonZero(self.Not(self.Equal(padded, wide))), [0])
        summed = self.ReduceSum(value, axes, keepdims=1, noop_with_empty_axes=1)
        return self.Reshape(summed, narrow, allowzero=1)


def _of(result: ir.Value, like: ir.Value) -> ir.Value:
    """Note that a computed shape is that of `like`, which may be known by name."""
    known = infer.dims(result)
    if like.shape is not None and (known is None or None in known):
        result.shape = like.shape
    return result
