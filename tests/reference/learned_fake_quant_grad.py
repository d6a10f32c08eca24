"""y = r·s with r = clip(round(x/s) + z) − z. Straight through the rounding, d round(t)/dt = 1:

within the range   ∂y/∂x = 1, ∂y/∂s = r − x/s, ∂y/∂z = 0
outside of it      ∂y/∂x = 0, ∂y/∂s = r,       ∂y/∂z = −s

LSQ multiplies dscale by g = 1/√(n·Qp), with n numbers to a scale and Qp integers above 0: a scale then changes by
the same share of itself as a weight does. A scale that is e^u has du = s·dscale, and a step of u moves it by s·du:
for LSQ's step of s, g·∂L/∂s, dscale has to be g·∂L/∂s / s².

Esser et al., Learned Step Size Quantization (2020); Bhalgat et al., LSQ+ (2020).
"""

import numpy as np

from reference.fake_quant import steps, summed


def count(x, scale, axis, block_size):
    """How many numbers share a scale."""
    return min(block_size, x.shape[axis]) if block_size else x.size // max(np.size(scale), 1)


def learned_fake_quant_grad(
    dY, input, scale, zero_point=None, *,
    quant_min=0, quant_max=255, axis=1, block_size=0, grad_factor=1.0, scale_gradient="exact", batched=0,
):  # fmt: skip
    _, r, inside, wide = steps(input, scale, zero_point, quant_min, quant_max, axis, block_size)
    rest = (r - input.astype(np.longdouble) / wide).astype(np.float64)  # r − x/s cancels
    dscale = np.where(inside, dY * rest, dY * r)
    dzero = np.where(inside, 0.0, -dY * wide)
    shared = count(input, scale, axis, block_size) / (
        input.shape[0] if batched and not block_size else 1
    )
    zero = 0.0 if zero_point is None else zero_point
    above = np.maximum(quant_max - zero, zero - quant_min - 1)  # below 0, where that is longer
    g = 1 / np.sqrt(max(shared, 1) * np.maximum(above, 1))
    pace = {"exact": 1.0, "lsq": g, "lsq_log": g / np.asarray(scale) ** 2}[scale_gradient]
    return {
        "dX": np.where(inside, dY, 0.0),
        "dscale": grad_factor * pace * summed(dscale, scale, axis, block_size),
        "dzero_point": grad_factor * summed(dzero, scale, axis, block_size),
    }
