import numpy as np

from cases.case import Case
from cases.samples import log_simplex, normal, values
from cases.softmax_family import along_axis_cases


def cancelling(rows, columns, turned=False):
    """Cotangents that sum to 0 in every row: what is left of their sum is its error."""

    def draw(rng):
        half = rng.normal(size=(rows, columns // 2)).astype(np.float32)
        dy = rng.permuted(np.concatenate([half, -half], axis=1), axis=1)
        return dy.T if turned else dy

    return draw


def peaked(rows, columns, turned=False):
    """Logarithms of probabilities of which the first is nearly 1: it hands on the sum as it is, with all its error."""

    def draw(rng):
        y = np.full((rows, columns), np.log(1e-3 / (columns - 1)))
        y[:, 0] = np.log(0.999)
        return y.T if turned else y

    return draw


CASES = [
    *along_axis_cases(log_simplex),
    Case("very small probabilities", dY=normal(3, 9), Y=log_simplex(3, 9, spread=30)),
    Case("an infinite cotangent", dY=values(1.0, float("inf"), -2.0), Y=values(-1.0, -2.0, -0.7)),
    Case(
        "an infinite cotangent in a column",
        dY=lambda rng: np.array([[1.0, 2.0], [float("inf"), -1.0], [-2.0, 0.5]]),
        Y=log_simplex(3, 2, axis=0),
        axis=0,
    ),
    Case("cotangents that cancel", dY=cancelling(40, 1_024), Y=peaked(40, 1_024)),
    Case(
        "cotangents that cancel in columns",
        dY=cancelling(40, 1_024, turned=True),
        Y=peaked(40, 1_024, turned=True),
        axis=0,
    ),
    Case("a long row of cotangents that cancel", dY=cancelling(4, 40_000), Y=peaked(4, 40_000)),
    Case("probability 0", dY=normal(3), Y=values(0.0, float("-inf"), float("-inf"))),
]
