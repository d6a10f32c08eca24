from cases.case import Case
from cases.samples import normal, one_hot, simplex
from cases.softmax_family import along_axis_cases

CASES = [
    *along_axis_cases(simplex),
    Case("exactly one-hot: all 0", dY=normal(3, 9), Y=one_hot(3, 9)),
    Case("nearly one-hot", dY=normal(3, 9), Y=simplex(3, 9, peak=1 - 1e-6)),
]
