"""Y[n, m, o] = B[m] + Σ_{c, k} Xp[n, c, o·stride + k·dilation]·W[m, c, k], Xp being X with zeros around it."""

import numpy as np

from reference.conv_grad import first_pads, split_groups


def conv_training(
    X, W, B=None,
    *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None, winograd_tile=2,
):  # fmt: skip
    rank, size, kernel = X.ndim - 2, X.shape[2:], W.shape[2:]
    stride, dilation = strides or [1] * rank, dilations or [1] * rank
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    begin = first_pads(auto_pad, pads, size, extent, stride)
    out = [_outputs(auto_pad, pads, size, extent, stride, a) for a in range(rank)]

    y = np.zeros((X.shape[0], W.shape[0], *out))
    groups_of_y, x, w = (
        split_groups(y, 1, group),
        split_groups(X, 1, group),
        split_groups(W, 0, group),
    )
    for o in np.ndindex(*out):
        for tap in np.ndindex(*kernel):
            i = [
                p * s + k * d - b
                for p, s, k, d, b in zip(o, stride, tap, dilation, begin, strict=True)
            ]
            if all(0 <= place < limit for place, limit in zip(i, size, strict=True)):
                groups_of_y[(..., *o)] += np.einsum("ngc,gmc->ngm", x[(..., *i)], w[(..., *tap)])
    return y if B is None else y + B.reshape(-1, *[1] * rank)


def _outputs(auto_pad, pads, size, extent, stride, a):
    """How many positions the kernel takes along axis a."""
    if auto_pad.startswith("SAME"):
        return -(-size[a] // stride[a])
    zeros = pads[a] + pads[a + len(size)] if pads and auto_pad == "NOTSET" else 0
    room = size[a] + zeros - extent[a]
    return room // stride[a] + 1 if room >= 0 else 0
