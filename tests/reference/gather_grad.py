"""Y = X[…, indices, …] along an axis: every use of a row of X adds its cotangent to that row."""

import numpy as np


def gather_grad(shape, indices, dY, *, axis=0):
    dx = np.zeros(tuple(shape))
    np.add.at(dx, (slice(None),) * (axis % len(shape)) + (indices,), dY)
    return dx
