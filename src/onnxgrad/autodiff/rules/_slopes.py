"""Slopes that a function's own result tells."""


def sigmoid_slope(op, Y):
    """σ' = Y·(1 - Y)."""
    return op.Mul(Y, op.Sub(1.0, Y))


def tanh_slope(op, Y):
    """tanh' = 1 - Y²."""
    return op.Sub(1.0, op.Mul(Y, Y))
