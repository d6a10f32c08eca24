from cases.case import Case
from cases.pointwise import INF, NAN, pointwise_cases
from cases.samples import ones, values

CASES = [
    *pointwise_cases("X", -3, 3),
    Case("zero passes nothing", dY=ones(2), X=values(0.0, -0.0)),
    Case("the comparison is literal: NaN gives 0", dY=ones(3), X=values(NAN, INF, -INF)),
]
