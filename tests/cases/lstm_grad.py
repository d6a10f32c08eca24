from cases.lstm import LSTM
from cases.recurrent import gradient_cases

CASES = gradient_cases(LSTM)
