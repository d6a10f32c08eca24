"""Pooling over sliding windows and over whole feature maps."""

import math

from onnxgrad.autodiff.rule import fused, rule
from onnxgrad.autodiff.rules._window import transposed_windows, vectors, window


@rule("MaxPool", wrt="X")
def max_pool(op, X, Indices, dY, *, storage_order):
    """Add each cotangent at the index that MaxPool reports: the first maximum of its window.

    Indices number all of X, batch and channels included, so they cover pads, dilations and
    ceil_mode. Windows that overlap may choose the same element, whose cotangents add up.
    """
    size = op.Reshape(op.Size(X), [1])
    zeros = op.full(size, 0, op.dtype(X))
    flat = op.ScatterElements(
        zeros, op.Reshape(Indices, [-1]), op.Reshape(dY, [-1]), axis=0, reduction="add"
    )
    if not storage_order:
        return op.reshape_like(flat, X)
    # Column major: the last two axes are numbered the other way round.
    rank = op.rank(X)
    order = [0, 1, *reversed(range(2, rank))]
    shape = op.Gather(op.shape(X), order, axis=0)
    return op.Transpose(op.Reshape(flat, shape), perm=order)


@fused("MaxPool", wrt="X")
def max_pool_fused(op, X, dY, *, attrs, storage_order, node):
    """MaxPoolTraining takes the node's place: onnxruntime's MaxPool is slow when it gives indices."""
    if storage_order or op.rank(X) > 5:
        return NotImplemented
    attrs = {k: v for k, v in attrs.items() if k != "storage_order"}
    results = op.MaxPoolTraining(X, **attrs, outputs=2)
    op.replace(node, results)
    return op.MaxPoolGrad(dY, results[1], op.shape(X))


rule("GlobalAveragePool", X=lambda op, X, Y, dY: op.expand_like(
    op.Div(dY, op.count(X, Y)), X))  # fmt: skip


@rule("GlobalMaxPool", wrt="X")
def global_max_pool(op, X, Y, dY):
    """The elements that attain the maximum share its cotangent equally."""
    hit = op.Cast(op.Equal(X, Y), to=op.dtype(X))
    count = op.ReduceSum(hit, list(range(2, op.rank(X))), keepdims=1)
    return op.Mul(hit, op.Div(dY, count))


@rule("AveragePool", wrt="X")
def average_pool(op, X, Y, dY, *, attrs, kernel_shape):
    """Each window spreads its cotangent, divided by its count, evenly over its elements.

    Spreading is a transposed convolution with ones, channel by channel: [N·C, 1, spatial...].
    """
    w = window(op, X, Y, attrs, vectors(op, kernel_shape))
    share = op.Div(dY, window_count(op, X, Y, w, kernel_shape, attrs, dY))
    share = _per_channel(op, share, w)
    ones = op.full([1, 1, *kernel_shape], 1, op.dtype(X))
    return op.reshape_like(transposed_windows(op, share, ones, _per_channel(op, X, w), w, 1), X)


fused("AveragePool", X=lambda op, X, dY, *, attrs:
      op.AveragePoolGrad(dY, op.shape(X), **attrs))  # fmt: skip


def _per_channel(op, x, w):
    """[N, C, spatial...] -> [N·C, 1, spatial...]."""
    space = [op.dim(x, a) for a in w.axes]
    return op.Reshape(x, op.Concat([-1], [1], *space, axis=0))


def window_count(op, X, Y, w, kernel, attrs, like):
    """The number of elements that each window averages over, broadcast against Y.

    Along one axis output o reads o·stride + j·dilation - begin for j below the kernel size, and
    counts what lies inside the input; with count_include_pad, inside the padded input. The
    count of a window is the product over the axes.
    """
    include = attrs.get("count_include_pad", 0)
    padded = w.explicit is None or any(w.explicit)
    if not attrs.get("ceil_mode", 0) and (include or not padded):
        return op.constant(math.prod(kernel), like.dtype)
    count = None
    for i, axis in enumerate(w.axes):
        starts = op.Mul(op.range(op.dim(Y, axis)), w.strides[i])
        taps = op.constant([j * w.dilations[i] for j in range(kernel[i])])
        place = op.Sub(op.Add(op.Unsqueeze(starts, [1]), taps), w.begin[i])
        low = op.Neg(w.begin[i]) if include else op.constant([0])
        high = op.Add(op.dim(X, axis), w.end[i]) if include else op.dim(X, axis)
        inside = op.And(op.GreaterOrEqual(place, low), op.Less(place, high))
        along = op.ReduceSum(op.number(inside, like), [1], keepdims=0)
        along = op.Reshape(along, [-1] + [1] * (len(kernel) - 1 - i))
        count = along if count is None else op.Mul(count, along)
    return count


def _power_slope(op, X, p):
    """d|x|^p / p = sign(x)·|x|^(p-1)."""
    if p == 1:
        return op.Sign(X)
    return X if p == 2 else op.Mul(op.Sign(X), op.Pow(op.Abs(X), float(p - 1)))


def _norm_share(op, Y, dY, p):
    """dY·Y^(1-p), and 0 at Y = 0, where the norm has no slope."""
    if p == 1:
        return dY
    zero = op.Equal(Y, 0.0)
    return op.Where(zero, 0.0, op.Div(dY, op.Pow(op.Where(zero, 1.0, Y), float(p - 1))))


@rule("LpPool", wrt="X")
def lp_pool(op, X, Y, dY, *, attrs, kernel_shape, p):
    """Y = (Σ|x|^p)^(1/p): dX = sign(x)·|x|^(p-1) · Σ dY·Y^(1-p) over the windows x is in."""
    w = window(op, X, Y, attrs, vectors(op, kernel_shape))
    share = _per_channel(op, _norm_share(op, Y, dY, p), w)
    ones = op.full([1, 1, *kernel_shape], 1, op.dtype(X))
    spread = transposed_windows(op, share, ones, _per_channel(op, X, w), w, 1)
    return op.Mul(op.reshape_like(spread, X), _power_slope(op, X, p))


rule("GlobalLpPool", X=lambda op, X, Y, dY, *, p: op.Mul(
    _power_slope(op, X, p), _norm_share(op, Y, dY, p)))  # fmt: skip


@rule("MaxUnpool", wrt="X")
def max_unpool(op, X, I, doutput):  # noqa: E741  (the schema's name)
    """Read each cotangent at the place its element was put."""
    flat = op.Gather(op.Reshape(doutput, [-1]), op.Reshape(I, [-1]), axis=0)
    return op.reshape_like(flat, X)
