from cases.case import Case
from cases.linear import LAYERS
from cases.samples import normal, ones


def layer(title, rows, k, n, outputs=None):
    return Case(title, dY=normal(*rows, n), X=normal(*rows, k), W=normal(k, n), outputs=outputs)


CASES = [
    *(layer(*given) for given in LAYERS),
    layer("dX only", (40,), 50, 60, ("dX",)),
    layer("dW only", (40,), 50, 60, ("dW",)),
    layer("dB only", (40,), 50, 60, ("dB",)),
    layer("dW and dB", (40,), 50, 60, ("dW", "dB")),
    Case("equal cotangents do not drift", dY=ones(70_001, 2), X=ones(70_001, 1), W=ones(1, 2), outputs=("dX", "dB")),
]  # fmt: skip
