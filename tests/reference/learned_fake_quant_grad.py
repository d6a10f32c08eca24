"""y = r·s with r = clip(round(x/s) + z) − z. Straight through the rounding, d round(t)/dt = 1:

within the range   ∂y/∂x = 1, ∂y/∂s = r − x/s, ∂y/∂z = 0
outside of it      ∂y/∂x = 0, ∂y/∂s = r,       ∂y/∂z = −s

Esser et al., Learned Step Size Quantization (2020); Bhalgat et al., LSQ+ (2020).
"""

import numpy as np

from reference.fake_quant import steps, summed


def learned_fake_quant_grad(
    dY, input, scale, zero_point=None, *,
    quant_min=0, quant_max=255, axis=1, block_size=0, grad_factor=1.0,
):  # fmt: skip
    _, r, inside, wide = steps(input, scale, zero_point, quant_min, quant_max, axis, block_size)
    rest = (r - input.astype(np.longdouble) / wide).astype(np.float64)  # r − x/s cancels
    dscale = np.where(inside, dY * rest, dY * r)
    dzero = np.where(inside, 0.0, -dY * wide)
    return {
        "dX": np.where(inside, dY, 0.0),
        "dscale": grad_factor * summed(dscale, scale, axis, block_size),
        "dzero_point": grad_factor * summed(dzero, scale, axis, block_size),
    }
