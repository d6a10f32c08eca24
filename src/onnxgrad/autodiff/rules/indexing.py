"""Picking, placing and choosing elements by index or by condition."""

import numpy as np

from onnxgrad.autodiff.rule import NoGradient, fused, rule
from onnxgrad.autodiff.rules._move import offsets, scatter_rows, spread_along

rule("Where", broadcast=True,
     X=lambda op, condition, doutput: op.Where(condition, doutput, 0.0),
     Y=lambda op, condition, doutput: op.Where(condition, 0.0, doutput))  # fmt: skip


@rule("Gather", wrt="data")
def gather(op, data, indices, doutput, *, axis):
    """Add each slice back to where it was read; an index that repeats adds several times."""
    rank = op.rank(data)
    axis %= rank
    # doutput [before, indices..., after] -> [before, all indices, after]
    before = [op.dim(data, i) for i in range(axis)]
    after = [op.dim(data, i) for i in range(axis + 1, rank)]
    flat = op.Reshape(doutput, op.Concat(*before, [-1], *after, axis=0))
    return spread_along(op, flat, op.Reshape(indices, [-1]), op.dim(data, axis), axis)


fused("Gather", data=lambda op, data, indices, doutput, *, axis:
      op.GatherGrad(op.shape(data), indices, doutput, axis=axis))  # fmt: skip


@rule("GatherElements", wrt="data")
def gather_elements(op, data, indices, doutput, *, axis):
    """Add each element back to where it was read."""
    return op.ScatterElements(op.full_like(data, 0), indices, doutput, axis=axis, reduction="add")


fused("GatherElements", data=lambda op, data, indices, doutput, *, axis:
      op.GatherElementsGrad(doutput, op.shape(data), indices, axis=axis))  # fmt: skip


@rule("GatherND", wrt="data")
def gather_nd(op, data, indices, doutput, *, batch_dims):
    """Add each slice back, on data viewed as [all positions, slice]."""
    rows = offsets(op, indices, data, batch_dims)
    return scatter_rows(op, rows, doutput, data, batch_dims + _depth(op, indices))


fused("GatherND", data=lambda op, data, indices, doutput, *, batch_dims:
      op.GatherNDGrad(op.shape(data), indices, doutput, batch_dims=batch_dims))  # fmt: skip


def _depth(op, indices):
    """The length of one index: how many leading axes of the data it fixes."""
    shape = op.dims(indices)
    if shape is None or not isinstance(shape[-1], int):
        raise NoGradient(
            "its indices have a length that only the run knows",
            "give the indices a known last axis",
        )
    return shape[-1]


@rule("ScatterElements", wrt="data updates")
def scatter_elements(op, data, indices, updates, output, doutput, *, axis, reduction, need):
    """Without reduction, data gets nothing where updates went. With "add", both get everything."""
    taken = op.GatherElements(doutput, indices, axis=axis)
    if reduction == "none":
        zeros = op.full_like(updates, 0)
        kept = op.ScatterElements(doutput, indices, zeros, axis=axis) if "data" in need else None
        return kept, taken
    if reduction == "add":
        return doutput, taken
    return _scatter_reduced(
        op, data, updates, output, doutput, reduction, need,
        read=lambda x: op.GatherElements(x, indices, axis=axis),
        add=lambda x, u: op.ScatterElements(x, indices, u, axis=axis, reduction="add"),
    )  # fmt: skip


@rule("ScatterND", wrt="data updates")
def scatter_nd(op, data, indices, updates, output, doutput, *, reduction, need):
    """As ScatterElements, on slices."""
    taken = op.GatherND(doutput, indices)
    if reduction == "none":
        kept = op.ScatterND(doutput, indices, op.full_like(updates, 0)) if "data" in need else None
        return kept, taken
    if reduction == "add":
        return doutput, taken
    rows, depth = offsets(op, indices, data), _depth(op, indices)
    return _scatter_reduced(
        op, data, updates, output, doutput, reduction, need,
        read=lambda x: op.GatherND(x, indices),
        add=lambda x, u: op.Add(x, scatter_rows(op, rows, u, data, depth)),
    )  # fmt: skip


def _scatter_reduced(op, data, updates, output, doutput, reduction, need, *, read, add):
    """max and min: data and updates that attain the output share its cotangent equally.

    mul: each factor gets the product of the others, output / factor; factors must not be 0.
    """
    if reduction == "mul":
        return (
            op.Mul(doutput, op.Div(output, data)) if "data" in need else None,
            op.Div(read(op.Mul(doutput, output)), updates) if "updates" in need else None,
        )
    kind = op.dtype(data)
    hit_data = op.Cast(op.Equal(data, output), to=kind)
    hit_updates = op.Cast(op.Equal(updates, read(output)), to=kind)
    share = op.Div(doutput, add(hit_data, hit_updates))
    return op.Mul(share, hit_data), op.Mul(read(share), hit_updates)


@rule("TopK", wrt="X")
def top_k(op, X, Indices, dValues, *, axis):
    """Put each cotangent back at the index its value came from; indices never repeat."""
    return op.ScatterElements(op.full_like(X, 0), Indices, dValues, axis=axis)


@rule("Compress", wrt="input")
def compress(op, input, condition, doutput, *, axis):
    """Put the chosen slices back at the positions where the condition holds."""
    positions = op.Reshape(op.NonZero(condition), [-1])
    if axis is None:
        size = op.Reshape(op.Size(input), [1])
        flat = spread_along(op, doutput, positions, size, 0, rank=1)
        return op.reshape_like(flat, input)
    rank = op.rank(input)
    return spread_along(op, doutput, positions, op.dim(input, axis % rank), axis % rank, rank=rank)


@rule("OneHot", wrt="values")
def one_hot(op, indices, depth, values, output, doutput, *, axis):
    """values = [off, on]: each gets the sum of the cotangents where it was written."""
    # in the types of the node itself: onnxruntime has few combinations, and this one it must have
    mask = op.OneHot(indices, depth, op.constant(np.array([0, 1]), values.dtype), axis=axis)
    on = op.ReduceSum(op.Mul(doutput, op.number(mask, doutput)), keepdims=0)
    total = op.ReduceSum(doutput, keepdims=0)
    return op.Concat(op.Unsqueeze(op.Sub(total, on), [0]), op.Unsqueeze(on, [0]), axis=0)
