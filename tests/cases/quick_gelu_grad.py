from cases.case import Case
from cases.gelu_family import gelu_cases
from cases.samples import normal, ones, ramp

CASES = [
    *gelu_cases(),
    Case("alpha 1: the derivative of SiLU", dY=normal(200), X=normal(200), alpha=1.0),
    Case("a negative alpha", dY=ones(2_001), X=ramp(2_001, -9, 9), alpha=-1.5),
    Case("alpha 0: one half", dY=ones(20), X=normal(20), alpha=0.0),
]
