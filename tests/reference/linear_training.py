"""Y = X·W + B + added."""

import numpy as np


def linear_training(X, W, B=None, added=None):
    Y = np.einsum("...k,kn->...n", X, W)
    Y = Y if B is None else Y + B
    return Y if added is None else Y + added
