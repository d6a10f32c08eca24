from cases.bias_gelu import bias_gelu_cases

CASES = bias_gelu_cases()
