"""Y = x̂·scale + bias, x̂ normalised over the channels of a group and the spatial dims of one image."""

import numpy as np

from reference.means import mean_of


def group_normalization_training(X, scale, bias, *, epsilon=1e-5, num_groups=1, activation="none"):
    n, c = X.shape[:2]
    x = X.reshape(n, num_groups, -1) if X.size else X.reshape(n, num_groups, 0)
    centred = x - mean_of(x, (2,))
    xhat = (centred / np.sqrt(mean_of(centred**2, (2,)) + epsilon)).reshape(X.shape)
    channels = (1, c, *[1] * (X.ndim - 2))
    weights, offsets = (
        np.repeat(v.reshape(-1), c // v.size).reshape(channels) for v in (scale, bias)
    )
    y = xhat * weights + offsets
    return np.maximum(y, 0) if activation == "relu" else y
