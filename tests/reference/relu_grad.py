"""Relu(x) = max(x, 0)."""

import numpy as np


def relu_grad(dY, X):
    return np.where(X > 0, dY, 0.0)
