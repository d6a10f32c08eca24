"""Of Y = X·W + B:  dX = dY·Wᵀ,  dW = Xᵀ·dY,  dB = Σ dY, over all rows."""

import math

import numpy as np


def linear_grad(dY, X, W):
    count = math.prod(X.shape[:-1])
    rows, cotangents = X.reshape(count, W.shape[0]), dY.reshape(count, W.shape[1])
    dX = np.einsum("...n,kn->...k", dY, W)
    return dX, np.einsum("rk,rn->kn", rows, cotangents), cotangents.sum(axis=0)
