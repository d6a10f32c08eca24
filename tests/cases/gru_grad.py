from cases.gru import GRU
from cases.recurrent import gradient_cases

CASES = gradient_cases(GRU)
