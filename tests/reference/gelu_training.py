"""X·Φ(X), X·sigmoid(2u) with u = √(2/π)·(X + 0.044715·X³), X·sigmoid(alpha·X), or X·min(max(X/6 + 1/2, 0), 1)."""

import math

import numpy as np


def gelu_training(X, *, form="erf", alpha=1.0):
    if form == "erf":
        # erfc keeps the digits of Φ far below zero
        return X * np.vectorize(lambda x: math.erfc(-x / math.sqrt(2)) / 2, otypes=[float])(X)
    if form == "hard":
        return X * np.clip(X / 6 + 0.5, 0, 1)
    z = alpha * X if form == "sigmoid" else 2 * math.sqrt(2 / math.pi) * (X + 0.044715 * X**3)
    return X * np.where(z < 0, np.exp(np.minimum(z, 0)), 1) / (1 + np.exp(-np.abs(z)))
