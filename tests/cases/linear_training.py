from cases.case import Case
from cases.linear import LAYERS
from cases.samples import exactly, normal

CASES = [
    *(Case(t, X=normal(*rows, k), W=normal(k, n)) for t, rows, k, n in LAYERS),
    *(Case(f"{t}, with a bias", X=normal(*rows, k), W=normal(k, n), B=normal(n)) for t, rows, k, n in LAYERS),
    *(Case(f"{t}, added to something", X=normal(*rows, k), W=normal(k, n), added=normal(*rows, n))
      for t, rows, k, n in LAYERS),
    *(Case(f"{t}, with a bias, added to something", X=normal(*rows, k), W=normal(k, n), B=normal(n), added=normal(*rows, n))
      for t, rows, k, n in LAYERS),
    Case("NaN spoils its row only", X=exactly([[float("nan"), 1.0], [1.0, 2.0]]), W=normal(2, 3)),
]  # fmt: skip
