"""Y = x̂·scale + bias, x̂ normalised over the channels of a group and the spatial dims of one image."""

import numpy as np

from reference.means import mean_of


def group_normalization_grad(dY, X, scale, Y=None, added=0.0, *, epsilon, num_groups=1):
    n, c = X.shape[:2]
    dY = dY if Y is None else np.where(Y > 0, dY, 0)
    given, scale = scale.shape, scale.reshape(-1)
    groups = (n, num_groups, c // num_groups, int(np.prod(X.shape[2:], dtype=int)))
    x, dy = X.reshape(groups), dY.reshape(groups)
    per_channel = np.repeat(scale, c // len(scale)) if len(scale) else scale
    weights = per_channel.reshape(1, num_groups, c // num_groups, 1)
    centred = x - mean_of(x, (2, 3))
    inv = 1 / np.sqrt(mean_of(centred**2, (2, 3)) + epsilon)
    xhat, g = centred * inv, dy * weights
    dx = inv * (g - mean_of(g, (2, 3)) - xhat * mean_of(g * xhat, (2, 3)))
    shape = (len(scale), c // max(len(scale), 1))
    dscale, dbias = (
        (dy * xhat).sum((0, 3)).reshape(shape).sum(1),
        dy.sum((0, 3)).reshape(shape).sum(1),
    )
    return dx.reshape(X.shape) + added, dscale.reshape(given), dbias.reshape(given)
