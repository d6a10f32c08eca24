"""Y = log softmax(X) along an axis: dYi/dXj = δij − exp(Yj), so dX = dY − exp(Y)·Σ dY."""

import numpy as np

from reference.softmax_grad_13 import _along


def log_softmax_grad_13(dY, Y, *, axis=-1):
    shape = np.shape(dY)
    dy, y = _along(axis, dY, Y)
    dx = dy - np.exp(y) * dy.sum(-1, keepdims=True)
    return np.moveaxis(dx, -1, axis).reshape(shape)


def scale(dY, Y, *, axis=-1):
    """The largest |dY| + exp(Y)·|Σ| of each row."""
    dy, y = _along(axis, dY, Y)
    terms = np.abs(dy) + np.exp(y) * np.abs(dy.sum(-1, keepdims=True))
    widest = np.broadcast_to(terms.max(-1, keepdims=True, initial=0.0), terms.shape)
    return np.moveaxis(widest, -1, axis).reshape(np.shape(dY))
