from cases.case import Case
from cases.samples import log_simplex, normal, values
from cases.softmax_family import along_axis_cases

CASES = [
    *along_axis_cases(log_simplex),
    Case("very small probabilities", dY=normal(3, 9), Y=log_simplex(3, 9, spread=30)),
    Case("probability 0", dY=normal(3), Y=values(0.0, float("-inf"), float("-inf"))),
]
