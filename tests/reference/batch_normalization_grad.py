"""Y = x̂·scale + bias with x̂ = (X − mean)·inv, the statistics those of each channel over batch and spatial dims.

`variance` is the inverse deviation, as the old system passes it.
"""


def batch_normalization_grad(dY, X, scale, mean, variance, *, epsilon=1e-5):
    axes = (0, *range(2, X.ndim))
    per_channel = [1, -1, *[1] * (X.ndim - 2)]
    inv = variance.reshape(per_channel)
    xhat = (X - mean.reshape(per_channel)) * inv
    dbias, dscale = dY.sum(axes), (dY * xhat).sum(axes)
    count = max(X.size // max(X.shape[1], 1), 1)
    inner = dY - (dbias.reshape(per_channel) + xhat * dscale.reshape(per_channel)) / count
    return scale.reshape(per_channel) * inv * inner, dscale, dbias
