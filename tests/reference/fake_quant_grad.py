"""Rounding counts as the identity where the integer was within its range, and as a constant elsewhere."""

import numpy as np


def fake_quant_grad(dY, gradient_mask):
    return np.where(gradient_mask, dY, 0.0)
