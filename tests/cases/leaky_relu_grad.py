from cases.case import Case
from cases.pointwise import INF, NAN, pointwise_cases
from cases.samples import normal, ones, values

CASES = [
    *pointwise_cases("Y", -3, 3),
    Case("another slope", dY=normal(64), Y=normal(64), alpha=0.3),
    Case("a negative slope", dY=normal(64), Y=normal(64), alpha=-0.5),
    Case("no slope", dY=normal(64), Y=normal(64), alpha=0.0),
    Case("NaN and infinity in Y", dY=ones(3), Y=values(NAN, INF, -INF)),
]
