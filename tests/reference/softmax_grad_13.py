"""Y = softmax(X) along an axis: dYi/dXj = Yi(δij − Yj), so dX = Y(dY − Σ Y·dY)."""

import numpy as np


def _along(axis, *arrays):
    return [np.moveaxis(np.atleast_1d(a), axis, -1) for a in arrays]


def softmax_grad_13(dY, Y, *, axis=-1):
    shape = np.shape(dY)
    dy, y = _along(axis, dY, Y)
    dx = y * (dy - (y * dy).sum(-1, keepdims=True))
    return np.moveaxis(dx, -1, axis).reshape(shape)


def scale(dY, Y, *, axis=-1):
    """The largest |Y|·(|dY| + |Σ|) of each row."""
    dy, y = _along(axis, dY, Y)
    terms = np.abs(y) * (np.abs(dy) + np.abs((y * dy).sum(-1, keepdims=True)))
    widest = np.broadcast_to(terms.max(-1, keepdims=True, initial=0.0), terms.shape)
    return np.moveaxis(widest, -1, axis).reshape(np.shape(dY))
