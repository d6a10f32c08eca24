"""Y[o] = Σ X over the window o / its size: dY[o] / size goes to every element of the window."""

import itertools

import numpy as np


def _padding(dim, out, kernel, stride, dilation, mode, before):
    if not mode.startswith("SAME"):
        return 0 if mode == "VALID" else before
    total = max((out - 1) * stride + (kernel - 1) * dilation + 1 - dim, 0)
    return total // 2 if mode == "SAME_UPPER" else total - total // 2


def _after(dim, out, kernel, stride, dilation, mode, before, after):
    if not mode.startswith("SAME"):
        return 0 if mode == "VALID" else after
    return max((out - 1) * stride + (kernel - 1) * dilation + 1 - dim, 0) - before


def average_pool_grad(dY, shape, *, kernel_shape, strides=None, auto_pad="NOTSET", pads=None, count_include_pad=0,
                      dilations=None, ceil_mode=0):  # fmt: skip
    r = len(kernel_shape)
    strides, dilations, pads = strides or [1] * r, dilations or [1] * r, pads or [0] * (2 * r)
    dx = np.zeros(tuple(shape))
    axes = []  # for each axis and window: the elements it covers, and the size it counts
    for a in range(r):
        dim, out, k, s, d = shape[a + 2], dY.shape[a + 2], kernel_shape[a], strides[a], dilations[a]
        before = _padding(dim, out, k, s, d, auto_pad, pads[a])
        after = _after(dim, out, k, s, d, auto_pad, before, pads[a + r])
        rows = []
        for o in range(out):
            places = o * s - before + d * np.arange(k)
            inside = places[(places >= 0) & (places < dim)]
            rows.append(
                (inside, np.sum(places < dim + after) if count_include_pad else len(inside))
            )
        axes.append(rows)
    for o in itertools.product(*(range(n) for n in dY.shape[2:])):
        covered = [axes[a][i] for a, i in enumerate(o)]
        size = np.prod([c[1] for c in covered])
        place = np.ix_(*(np.arange(n) for n in shape[:2]), *(c[0] for c in covered))
        dx[place] += (dY[(slice(None), slice(None), *o)] / size).reshape(*shape[:2], *[1] * r)
    return dx
