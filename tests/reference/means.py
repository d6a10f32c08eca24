"""The mean over some axes, which stay as dims of 1."""

import numpy as np


def mean_of(x, axes):
    """In long double, and corrected by the mean of what is left: equal numbers have exactly themselves as their mean."""
    wide = x.astype(np.longdouble)
    count = max(int(np.prod([x.shape[a] for a in axes], dtype=int)), 1)
    mean = wide.sum(axes, keepdims=True) / count
    return (mean + (wide - mean).sum(axes, keepdims=True) / count).astype(x.dtype)
