from cases.gru import GRU
from cases.recurrent import forward_cases

CASES = forward_cases(GRU)
