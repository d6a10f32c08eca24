"""Y = X[start:end:step] along some axes: the cotangent goes back to those places, the others get 0."""

import numpy as np


def _slice(dim, start, end, step):
    """ONNX's bounds as the list of indices they take."""
    start, end = (int(v) + dim if v < 0 else int(v) for v in (start, end))
    if step > 0:
        return np.arange(min(max(start, 0), dim), min(max(end, 0), dim), step)
    return np.arange(min(max(start, 0), dim - 1), min(max(end, -1), dim - 1), step)


def slice_grad(dY, shape, starts, ends, axes=None, steps=None):
    dx = np.zeros(tuple(shape))
    places = [np.arange(d) for d in shape]
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        places[axis] = _slice(shape[axis], start, end, int(step))
    dx[np.ix_(*places)] = dY
    return dx
