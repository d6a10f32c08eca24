"""Y = x̂·scale + bias with x̂ = (X − mean)·inv, mean and inv those of each row (the axes from `axis` on).

inv and mean depend on X, which gives the two means in X_grad:  dX = inv·(g − mean(g) − x̂·mean(g·x̂)),  g = dY·scale.
"""

import numpy as np


def rows_and_columns(X, axis):
    """The number of rows and of columns when X is split at the axis."""
    shape = np.shape(X)
    axis = axis % len(shape)
    return int(np.prod(shape[:axis], dtype=int)), int(np.prod(shape[axis:], dtype=int))


def gradients(dY, xhat, scale, inv, centred=True):
    """All in rows × columns, inv as a column; returns dX, dscale and dbias."""
    g = dY * scale
    columns = max(g.shape[1], 1)
    dx = g - xhat * (g * xhat).sum(1, keepdims=True) / columns
    if centred:
        dx = dx - g.sum(1, keepdims=True) / columns
    return dx * inv, (dY * xhat).sum(0), dY.sum(0)


def layer_normalization_grad(Y_grad, X, scale, mean, inv_std_dev, added=0.0, *, axis=-1):
    split = rows_and_columns(X, axis)
    inv = inv_std_dev.reshape(-1, 1)
    xhat = (X.reshape(split) - mean.reshape(-1, 1)) * inv
    dx, dscale, dbias = gradients(Y_grad.reshape(split), xhat, scale.reshape(-1), inv)
    return dx.reshape(X.shape) + added, dscale.reshape(scale.shape), dbias.reshape(scale.shape)
