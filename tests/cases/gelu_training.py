from cases.case import Case
from cases.pointwise import INF, NAN
from cases.samples import normal, ramp, values

CASES = [
    Case("erf", X=normal(5, 7)),
    Case("erf, every part of the curve", X=ramp(4_001, -9, 9)),
    Case("erf, far below zero", X=ramp(101, -13, -5)),
    Case("tanh", X=normal(5, 7), form="tanh"),
    Case("tanh, every part of the curve", X=ramp(4_001, -9, 9), form="tanh"),
    Case("sigmoid", X=normal(5, 7), form="sigmoid"),
    Case("sigmoid, another slope", X=ramp(1_001, -20, 20), form="sigmoid", alpha=1.702),
    Case("a negative slope", X=normal(33), form="sigmoid", alpha=-1.0),
    Case("hard", X=normal(5, 7), form="hard"),
    Case("hard, every part of the curve", X=ramp(4_001, -5, 5), form="hard"),
    Case("hard, NaN and infinity", X=values(NAN, INF, 0, 30, -30), form="hard"),
    Case("much", X=normal(70_001)),
    Case("a scalar", X=normal()),
    Case("no elements", X=normal(0, 4), form="tanh"),
    Case("NaN and infinity", X=values(NAN, INF, 0, 30, -30)),
    Case("tanh, NaN and infinity", X=values(NAN, INF, 0, 30), form="tanh"),
]
