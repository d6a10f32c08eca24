"""Y = x̂·scale + bias, x̂ normalised over the channels of a group and the spatial dims of one image."""

import numpy as np


def group_normalization_grad(dY, X, scale, *, epsilon, num_groups=1):
    n, c = X.shape[:2]
    groups = (n, num_groups, c // num_groups, int(np.prod(X.shape[2:], dtype=int)))
    x, dy = X.reshape(groups), dY.reshape(groups)
    count = max(groups[2] * groups[3], 1)
    per_channel = np.repeat(scale, c // len(scale)) if len(scale) else scale
    weights = per_channel.reshape(1, num_groups, c // num_groups, 1)
    mean = x.sum((2, 3), keepdims=True) / count
    inv = 1 / np.sqrt(((x - mean) ** 2).sum((2, 3), keepdims=True) / count + epsilon)
    xhat, g = (x - mean) * inv, dy * weights
    dx = inv * (
        g
        - g.sum((2, 3), keepdims=True) / count
        - xhat * (g * xhat).sum((2, 3), keepdims=True) / count
    )
    shape = (len(scale), c // max(len(scale), 1))
    dscale, dbias = (
        (dy * xhat).sum((0, 3)).reshape(shape).sum(1),
        dy.sum((0, 3)).reshape(shape).sum(1),
    )
    return dx.reshape(X.shape), dscale, dbias
