import numpy as np

from cases.case import Case
from cases.pointwise import INF, NAN
from cases.samples import normal, ones, values


def key(seed, step):
    return lambda rng: np.array([seed, step], np.int64)


CASES = [
    Case("half of a matrix", X=normal(5, 7), key=key(1, 1)),
    Case("a tenth of much", X=normal(100_003), key=key(2, 7), ratio=0.1),
    Case("nothing", X=normal(64), key=key(1, 1), ratio=0.0),
    Case("almost everything", X=ones(2_001), key=key(3, 1), ratio=0.99),
    Case("another stream", X=normal(64), key=key(1, 1), stream=5),
    Case("another step", X=normal(64), key=key(1, 2)),
    Case("a negative seed", X=normal(64), key=key(-1, 2**62)),
    Case("a scalar", X=normal(), key=key(1, 1)),
    Case("no elements", X=normal(0, 4), key=key(1, 1)),
    Case("NaN and infinity are dropped, too", X=values(NAN, INF, -INF, 1, 2, 3), key=key(0, 0)),
]
