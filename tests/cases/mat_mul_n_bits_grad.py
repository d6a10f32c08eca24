from cases.packed_family import nbits_cases

CASES = nbits_cases("dY")
