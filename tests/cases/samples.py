"""Where the numbers of a case come from. Each returns a function of a random generator."""

from __future__ import annotations

import numpy as np


def normal(*shape, spread=1.0):
    """Normal numbers."""
    return lambda rng: rng.normal(0, spread, shape)


def uniform(*shape, low=-1.0, high=1.0):
    """Numbers spread evenly over [low, high)."""
    return lambda rng: rng.uniform(low, high, shape)


def ones(*shape):
    return lambda rng: np.ones(shape)


def zeros(*shape):
    return lambda rng: np.zeros(shape)


def values(*numbers):
    """Just these numbers."""
    return lambda rng: np.array(numbers, dtype=np.float64)


def ramp(count, low, high):
    """`count` numbers from low to high: every part of a curve."""
    return lambda rng: np.linspace(low, high, count)


def simplex(*shape, axis=-1, spread=2.0, peak=None):
    """Positive numbers that sum to 1 along the axis; `peak` gives the first of each row that much."""

    def draw(rng):
        x = np.exp(rng.normal(0, spread, shape))
        y = x / x.sum(axis, keepdims=True)
        if peak is None:
            return y
        y = np.moveaxis(y, axis, -1).copy()
        y[..., 1:] *= (1 - peak) / y[..., 1:].sum(-1, keepdims=True)
        y[..., 0] = peak
        return np.moveaxis(y, -1, axis)

    return draw


def log_simplex(*shape, axis=-1, spread=2.0):
    """Logarithms of numbers that sum to 1 along the axis."""
    return lambda rng: np.log(simplex(*shape, axis=axis, spread=spread)(rng))


def one_hot(rows, columns):
    """Exactly one 1 in each row."""
    return lambda rng: np.eye(columns)[rng.integers(0, columns, rows)]


def integers(*shape, low=0, high=10, dtype=np.int64):
    return lambda rng: rng.integers(low, high, shape).astype(dtype)


def exactly(array):
    """This array as it is; for inputs that are not of type T too."""
    return lambda rng: np.asarray(array)
