"""FastGelu(x) = ½x(1 + tanh(u)), u = α(x + γx³). With s = ½(1 + tanh u) = sigmoid(2u) the derivative is
s + x·s(1 − s)·2u', which keeps the negative tail that ½(1 + tanh) cancels away."""

import math

import numpy as np

from reference.normal import sigmoid

ALPHA = math.sqrt(2 / math.pi)
GAMMA = 0.044715


def fast_gelu_grad(dY, X):
    x = np.clip(X, -100, 100)  # beyond, the derivative is 0 or 1 to the last bit; NaN stays
    u = ALPHA * (x + GAMMA * x**3)
    du = ALPHA * (1 + 3 * GAMMA * x**2)
    return dY * (sigmoid(2 * u) + x * sigmoid(2 * u) * sigmoid(-2 * u) * 2 * du)
