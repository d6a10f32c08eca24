"""FastGelu(X + B): the gradient for X is that of FastGelu at X + B."""

from reference.fast_gelu_grad import fast_gelu_grad


def bias_fast_gelu_grad_dx(dY, X, B):
    return fast_gelu_grad(dY, X + B)
