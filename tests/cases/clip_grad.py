import numpy as np

from cases.case import Case
from cases.pointwise import INF, NAN, pointwise_cases
from cases.samples import exactly, normal, ones, values


def _bound(value):
    return exactly(np.float64(value))


def _relu6(**arguments):
    return {**arguments, "min": _bound(0), "max": _bound(6)}


CASES = [
    *pointwise_cases("X", -3, 3, min=_bound(-1.5), max=_bound(2)),
    Case("no upper bound", dY=normal(64), X=normal(64), min=_bound(-0.5)),
    Case("no lower bound", dY=normal(64), X=normal(64), max=_bound(0.25)),
    Case("no bounds", dY=normal(64), X=normal(64)),
    Case("on the bounds, which are inside", dY=ones(4), **_relu6(X=values(0.0, -0.0, 6.0, 3.0))),
    Case("just outside", dY=ones(2), **_relu6(X=values(-1e-30, 6.000001))),
    Case(
        "bounds that leave one number",
        dY=ones(3),
        X=values(1.0, 2.0, 3.0),
        min=_bound(2),
        max=_bound(2),
    ),
    Case(
        "bounds that leave nothing",
        dY=ones(3),
        X=values(1.0, 2.0, 3.0),
        min=_bound(2),
        max=_bound(1),
    ),
    Case(
        "infinite bounds", dY=ones(3), X=values(-INF, 0.0, INF), min=_bound(-INF), max=_bound(INF)
    ),
    Case("NaN and infinity in X", dY=ones(3), **_relu6(X=values(NAN, INF, -INF))),
    Case("NaN in X without bounds", dY=ones(2), X=values(NAN, 1.0)),
    Case("a NaN bound lets nothing through", dY=ones(3), X=normal(3), min=_bound(NAN)),
]
