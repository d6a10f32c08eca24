"""Of Y = X·W + B:  dX = dY·Wᵀ + added,  dW = Xᵀ·dY,  dB = Σ dY, over all rows."""

import math

import numpy as np


def linear_grad(dY, X, W, added=None):
    count = math.prod(X.shape[:-1])
    rows, cotangents = X.reshape(count, W.shape[0]), dY.reshape(count, W.shape[1])
    dX = np.einsum("...n,kn->...k", dY, W)
    dX = dX if added is None else dX + added
    return dX, np.einsum("rk,rn->kn", rows, cotangents), cotangents.sum(axis=0)
