from cases.samples import simplex
from cases.softmax_family import flattened_cases

CASES = flattened_cases(simplex)
