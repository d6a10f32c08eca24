"""Y = tanh(X), so dY/dX = 1 − Y²."""


def tanh_grad(dY, Y):
    return dY * (1 - Y * Y)
