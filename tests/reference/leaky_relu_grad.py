"""LeakyRelu(x) = x for x > 0, alpha·x elsewhere; Y has the sign of X."""

import numpy as np


def leaky_relu_grad(dY, Y, *, alpha=0.01):
    return np.where(Y > 0, dY, alpha * dY)
