"""Y = 1/(1 + exp(−X)), so dY/dX = Y(1 − Y)."""


def sigmoid_grad(dY, Y):
    return dY * Y * (1 - Y)
