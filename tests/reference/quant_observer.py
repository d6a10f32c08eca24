"""A moving range, 0 included, and the scale and zero point that cover it: (q − z)·s runs from low to high."""

import numpy as np


def extremes(x, like, axis, block_size):
    """The lowest and highest of all numbers that share a range, 0 among them."""
    shape = np.shape(like)
    if block_size:
        starts = np.arange(0, x.shape[axis], block_size)
        if not starts.size:
            return np.zeros(shape), np.zeros(shape)
        low, high = (f.reduceat(x, starts, axis=axis) for f in (np.minimum, np.maximum))
    else:
        axes = None if np.size(like) == 1 else tuple(i for i in range(x.ndim) if i != axis % x.ndim)
        low, high = (f(x, axis=axes, initial=0.0).reshape(shape) for f in (np.min, np.max))
    return np.minimum(low, 0.0), np.maximum(high, 0.0)


def quant_observer(
    X, low, high, observe, *,
    quant_min=0, quant_max=255, axis=1, block_size=0, symmetric=0, momentum=0.01,
):  # fmt: skip
    momentum = float(np.float32(momentum))
    if observe[0]:
        seen = extremes(np.where(np.isnan(X), 0.0, X), low, axis, block_size)
        low, high = (
            old + momentum * (new - old) for old, new in zip((low, high), seen, strict=True)
        )
    if symmetric:
        half = np.ceil((quant_max - quant_min - 1) / 2)
        scale = np.maximum(-low, high) / max(half, 1)
        zero = np.full(np.shape(low), quant_min + half + 1.0)
    else:
        scale = (high - low) / (quant_max - quant_min)
    scale = np.where(scale == 0, 1.0, scale)
    if not symmetric:
        zero = np.clip(quant_min - np.round(low / scale), quant_min, quant_max)
    return {"new_low": low, "new_high": high, "scale": scale, "zero_point": zero}
