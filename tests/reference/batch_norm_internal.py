"""BatchNormalization in training mode, from ONNX's definition: population variance,
running = input·momentum + new·(1 − momentum).
"""

import numpy as np

from reference.means import mean_of


def batch_norm_internal(X, scale, B, input_mean, input_var, *, epsilon, momentum, training_mode=1):
    axes = (0, *range(2, X.ndim))
    per_channel = [1, -1, *[1] * (X.ndim - 2)]
    mean, var, kept = input_mean, input_var, 1.0
    if training_mode:
        centre = mean_of(X, axes)
        mean, var = centre.reshape(-1), mean_of((X - centre) ** 2, axes).reshape(-1)
        kept = momentum
    inv = 1 / np.sqrt(var + epsilon)
    y = (X - mean.reshape(per_channel)) * inv.reshape(per_channel) * scale.reshape(
        per_channel
    ) + B.reshape(per_channel)
    return y, input_mean * kept + mean * (1 - kept), input_var * kept + var * (1 - kept), mean, inv
