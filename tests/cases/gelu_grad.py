from cases.gelu_family import gelu_cases

CASES = gelu_cases()
