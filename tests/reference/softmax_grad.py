"""Softmax up to opset 12: the tensor is flattened to two dims at the axis, and each row is normalised."""

import math

import numpy as np

from reference import softmax_grad_13


def flattened(a, axis):
    shape = np.shape(a)
    axis = axis + len(shape) if axis < 0 else axis
    return np.reshape(a, (math.prod(shape[:axis]), math.prod(shape[axis:])))


def softmax_grad(dY, Y, *, axis=1):
    dx = softmax_grad_13.softmax_grad_13(flattened(dY, axis), flattened(Y, axis))
    return dx.reshape(np.shape(dY))


def scale(dY, Y, *, axis=1):
    return softmax_grad_13.scale(flattened(dY, axis), flattened(Y, axis)).reshape(np.shape(dY))
