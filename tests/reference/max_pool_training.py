"""Y[o] = the largest X[i] of window o, i = o·stride + k·dilation - pad inside X; a NaN counts as larger than any number."""

import itertools

import numpy as np


def max_pool_training(
    X, *, kernel_shape, strides=None, auto_pad="NOTSET", pads=None, dilations=None, ceil_mode=0, activation="none",
):  # fmt: skip
    rank = len(kernel_shape)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    axes = [
        _windows(X.shape[a + 2], kernel_shape[a], strides[a], dilations[a],
                 (pads[a], pads[a + rank]) if pads else (0, 0), auto_pad, ceil_mode)
        for a in range(rank)
    ]  # fmt: skip
    flat = np.arange(X.size).reshape(X.shape)
    shape = (*X.shape[:2], *map(len, axes))
    y, indices = np.zeros(shape), np.zeros(shape, np.int64)
    for at in np.ndindex(*shape):
        covered = [axis[o] for axis, o in zip(axes, at[2:], strict=True)]
        places = [(*at[:2], *place) for place in itertools.product(*covered)]
        best = max(places, key=lambda p: np.inf if np.isnan(X[p]) else X[p])
        nans = [p for p in places if np.isnan(X[p])]
        best = nans[-1] if nans else best  # each NaN takes the place of the one before
        y[at], indices[at] = X[best], flat[best]
    return np.where(y < 0, 0, y) if activation == "relu" else y, indices


def _windows(size, kernel, stride, dilation, pads, auto_pad, ceil):
    """For each window along one axis, the places inside X that it covers."""
    extent = (kernel - 1) * dilation + 1
    before, after = (0, 0) if auto_pad == "VALID" else pads
    if auto_pad.startswith("SAME"):
        count = -(-size // stride)
        total = max(0, (count - 1) * stride + extent - size)
        before = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
    else:
        room = size + before + after - extent
        count = (-(-room // stride) if ceil else room // stride) + 1 if room >= 0 else 0
        if ceil and count and (count - 1) * stride >= size + before:
            count -= 1  # it would begin after the data
    starts = [o * stride - before for o in range(count)]
    return [[i for i in (s + k * dilation for k in range(kernel)) if 0 <= i < size] for s in starts]
