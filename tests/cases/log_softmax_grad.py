from cases.samples import log_simplex
from cases.softmax_family import flattened_cases

CASES = flattened_cases(log_simplex)
