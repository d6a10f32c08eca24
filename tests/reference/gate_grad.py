"""d/dA and d/dB of tanh(A)·sigmoid(B) or A·sigmoid(B). 1 − tanh² is 1/cosh², and s·(1 − s) is s(B)·s(−B)."""

import numpy as np

from reference.gate_training import sigmoid


def gate_grad(dY, X, *, axis=1, form="tanh"):
    a, b = np.split(X, 2, axis=axis)
    what, slope = (np.tanh(a), np.cosh(np.clip(a, -300, 300)) ** -2) if form == "tanh" else (a, 1.0)
    return np.concatenate([dY * sigmoid(b) * slope, dY * what * sigmoid(b) * sigmoid(-b)], axis)
