"""Numbers through integers and back: y = (clip(round(x/s) + z, low, high) − z)·s, halves to the even integer."""

import numpy as np


def along(scale, x, axis, block_size):
    """The scale of every element of x: one for all, one for each index of an axis, or one for each block of it."""
    scale = np.asarray(scale)
    if block_size:
        repeated = np.repeat(scale, block_size, axis=axis)
        return np.take(repeated, np.arange(x.shape[axis]), axis=axis)
    if scale.size == 1:
        return np.broadcast_to(scale.reshape(()), x.shape)
    shape = [1] * x.ndim
    shape[axis] = -1
    return np.broadcast_to(scale.reshape(shape), x.shape)


def summed(terms, scale, axis, block_size):
    """The adjoint of `along`: Σ of what belongs to one scale."""
    scale = np.asarray(scale)
    if block_size:
        starts = np.arange(0, terms.shape[axis], block_size)
        return np.add.reduceat(terms, starts, axis=axis) if starts.size else np.zeros(scale.shape)
    if scale.size == 1:
        return terms.sum().reshape(scale.shape)
    return terms.sum(axis=tuple(i for i in range(terms.ndim) if i != axis % terms.ndim))


def _in_the_type_of(t, *inputs):
    """QuantizeLinear rounds the quotient of two floats to a float, before it rounds that to an integer."""
    floats = all(np.array_equal(a, a.astype(np.float32), equal_nan=True) for a in inputs)
    return t.astype(np.float32).astype(np.float64) if floats else t


def steps(x, scale, zero_point, quant_min, quant_max, axis, block_size):
    """x/s, the integer that stands for it less z, whether that was within the range, and s of every element."""
    wide = along(scale, x, axis, block_size)
    zero = 0.0 if zero_point is None else np.round(along(zero_point, x, axis, block_size))
    t = x / wide
    r = np.round(_in_the_type_of(t, x, wide))  # NumPy rounds halves to even
    inside = (r + zero >= quant_min) & (r + zero <= quant_max)
    return t, np.clip(r, quant_min - zero, quant_max - zero), inside, wide


def fake_quant(
    input, scale, zero_point=None, *,
    quant_min=0, quant_max=255, axis=1, block_size=0, scale_gradient="exact", batched=0,
):  # fmt: skip
    _, r, inside, wide = steps(input, scale, zero_point, quant_min, quant_max, axis, block_size)
    return {"output": r * wide, "mask": inside}
