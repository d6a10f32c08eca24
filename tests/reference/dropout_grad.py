"""y = x·mask / (1 − ratio) in training, x otherwise."""

import numpy as np


def dropout_grad(dy, mask, ratio=0.5, training_mode=True):
    return dy * mask / (1 - np.float64(ratio)) if training_mode and ratio != 0 else dy
