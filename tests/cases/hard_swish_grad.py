from cases.case import Case
from cases.pointwise import INF, NAN, pointwise_cases
from cases.samples import ones, ramp, values

CASES = [
    *pointwise_cases("X", -5, 5),
    Case("where it bends", dY=ones(4), X=values(-3.0, 3.0, -3.0000002, 2.9999998)),
    Case("where the slope is near zero", dY=ones(2_001), X=ramp(2_001, -1.501, -1.499)),
    Case("the comparison is literal: NaN gives 0", dY=ones(3), X=values(NAN, INF, -INF)),
]
