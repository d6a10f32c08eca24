from cases.case import Case
from cases.pointwise import NAN, pointwise_cases
from cases.samples import ones, values

CASES = [
    *pointwise_cases("Y", -1, 1),
    Case("saturated: no gradient", dY=ones(3), Y=values(-1, 1, 1)),
    Case("nearly saturated", dY=ones(4), Y=values(1 - 6e-8, 1 - 1e-6, -1 + 6e-8, -1 + 1e-6)),
    Case("NaN in Y", dY=ones(2), Y=values(NAN, 0.5)),
]
