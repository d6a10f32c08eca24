"""Slopes that a function's own result tells, and where it does not tell them well enough."""


def sigmoid_slope(op, Y):
    """σ' = Y·(1 - Y)."""
    return op.Mul(Y, op.Sub(1.0, Y))


def exact_sigmoid_slope(op, X):
    """σ' = e / (1 + e)² with e = exp(-|X|): right to the last digits, however small it is.

    onnxruntime's Sigmoid is exact to about 1e-7 of 1, not of its result: a probability of 1e-6 has one
    digit, and its slope Y·(1 - Y) no more.
    """
    e = op.Exp(op.Neg(op.Abs(X)))
    width = op.Add(e, 1.0)
    return op.Div(e, op.Mul(width, width))


_MOVES = {
    "Identity", "Cast", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Concat", "Slice", "Split",
}  # fmt: skip


def is_answer(node) -> bool:
    """Say whether a node's result is what the model answers, perhaps in another shape."""
    waiting, seen = list(node.outputs), set()
    while waiting:
        value = waiting.pop()
        if value.is_graph_output():
            return True
        readers = {n for n, _ in value.uses() if n.op_type in _MOVES and not n.domain} - seen
        seen |= readers
        waiting += [v for n in readers for v in n.outputs]
    return False


def tanh_slope(op, Y):
    """tanh' = 1 - Y²."""
    return op.Sub(1.0, op.Mul(Y, Y))
