"""Y[n, m, i·stride + k·dilation − pad] += X[n, c, i]·W[c, m, k]: linear in X, in W and in the bias.

Each tap of the kernel meets one strided slice of Y, so the gradients are sums over taps, as for Conv.
"""

import numpy as np

from reference.conv_grad import split_groups


def first_pads(X, dY, W, auto_pad, dilations, output_padding, output_shape, pads, strides):
    """What is taken away before each spatial dim of Y."""
    begin = []
    for a in range(X.ndim - 2):
        full = (
            (X.shape[a + 2] - 1) * strides[a]
            + (W.shape[a + 2] - 1) * dilations[a]
            + 1
            + output_padding[a]
        )
        if output_shape is None and auto_pad in ("NOTSET", "VALID"):
            begin.append(pads[a] if auto_pad == "NOTSET" else 0)
            continue
        total = max(full - dY.shape[a + 2], 0)
        begin.append(total // 2 if auto_pad == "SAME_UPPER" else total - total // 2)
    return begin


def conv_transpose_grad(dY, X, W, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, output_padding=None,
                        output_shape=None, pads=None, strides=None):  # fmt: skip
    rank, out, size, kernel = X.ndim - 2, dY.shape[2:], X.shape[2:], W.shape[2:]
    stride, dilation = strides or [1] * rank, dilations or [1] * rank
    begin = first_pads(
        X,
        dY,
        W,
        auto_pad,
        dilation,
        output_padding or [0] * rank,
        output_shape,
        pads or [0] * 2 * rank,
        stride,
    )
    reach = [
        (i - 1) * s + (k - 1) * d + 1
        for i, s, k, d in zip(size, stride, kernel, dilation, strict=True)
    ]
    y = np.zeros(
        (*dY.shape[:2], *(max(r, b + o) for r, b, o in zip(reach, begin, out, strict=True)))
    )
    y[(slice(None), slice(None), *(slice(b, b + o) for b, o in zip(begin, out, strict=True)))] = dY
    y, x, w = split_groups(y, 1, group), split_groups(X, 1, group), split_groups(W, 0, group)
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    for tap in np.ndindex(*kernel) if X.size else ():
        read = tuple(
            slice(k * d, k * d + (i - 1) * s + 1, s)
            for k, d, i, s in zip(tap, dilation, size, stride, strict=True)
        )
        part = y[(slice(None), slice(None), slice(None), *read)]
        at = (slice(None), slice(None), slice(None), *tap)
        dw[at] = np.einsum("ngc...,ngm...->gcm", x, part, optimize=True)
        dx += np.einsum("ngm...,gcm->ngc...", part, w[at], optimize=True)
    return dx.reshape(X.shape), dw.reshape(W.shape), dY.sum(axis=(0, *range(2, dY.ndim)))
