from cases.lstm import LSTM
from cases.recurrent import forward_cases

CASES = forward_cases(LSTM)
