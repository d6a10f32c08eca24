from cases.packed_family import bnb4_cases

CASES = bnb4_cases("dY")
