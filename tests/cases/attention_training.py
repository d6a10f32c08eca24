import numpy as np

from cases.attention import INF, forward_cases
from cases.case import Case
from cases.samples import exactly, normal


def spoiled(value, *shape, at):
    """Zeros but for one number."""
    x = np.zeros(shape)
    x[at] = value
    return exactly(x)


CASES = [
    *forward_cases(),
    Case("a query that is NaN spoils its row only", Q=spoiled(np.nan, 1, 1, 3, 2, at=(0, 0, 1, 0)),
         K=normal(1, 1, 4, 2), V=normal(1, 1, 4, 2)),
    Case("an infinite value", Q=normal(1, 1, 3, 2), K=normal(1, 1, 4, 2),
         V=spoiled(INF, 1, 1, 4, 2, at=(0, 0, 1, 0))),
]  # fmt: skip
