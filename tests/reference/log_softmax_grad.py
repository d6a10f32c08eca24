"""LogSoftmax up to opset 12: the tensor is flattened to two dims at the axis, and each row is normalised."""

import numpy as np

from reference import log_softmax_grad_13
from reference.softmax_grad import flattened


def log_softmax_grad(dY, Y, *, axis=1):
    dx = log_softmax_grad_13.log_softmax_grad_13(flattened(dY, axis), flattened(Y, axis))
    return dx.reshape(np.shape(dY))


def scale(dY, Y, *, axis=1):
    return log_softmax_grad_13.scale(flattened(dY, axis), flattened(Y, axis)).reshape(np.shape(dY))
