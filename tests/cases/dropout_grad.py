import numpy as np

from cases.case import Case
from cases.samples import exactly, normal, zeros


def _mask(*shape, kept=0.7):
    return lambda rng: rng.random(shape) < kept


def _case(title, shape, ratio=None, training=None, kept=0.7, dy=normal):
    more = {} if ratio is None else {"ratio": exactly(np.float64(ratio))}
    if training is not None:
        more["training_mode"] = exactly(np.array(training))
    return Case(title, dy=dy(*shape), mask=_mask(*shape, kept=kept), **more)


CASES = [
    *(_case(f"ratio {r}", (5, 13), r) for r in (0.0, 0.1, 0.25, 0.3, 0.5, 0.75, 0.9, 0.99)),
    *(_case(f"ratio {r}, training", (5, 13), r, True) for r in (0.0, 0.1, 0.5, 0.9)),
    *(
        _case(f"ratio {r}, not training: dy itself", (5, 13), r, False)
        for r in (0.0, 0.1, 0.5, 0.9)
    ),
    *(_case(f"{n} elements", (n,), 0.2) for n in (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 1000)),
    _case("no ratio: a half", (4, 9)),
    _case("no ratio, training", (4, 9), None, True),
    _case("no ratio, not training", (4, 9), None, False),
    _case("everything dropped", (4, 9), 0.3, kept=0.0),
    _case("everything kept", (4, 9), 0.3, kept=1.1),
    _case("no elements", (0, 3), 0.3),
    _case("a scalar", (), 0.3),
    _case("four dims", (2, 3, 4, 5), 0.4),
    _case("more than one piece", (70, 1001), 0.4),
    _case("more than one piece, not training", (70, 1001), 0.4, False),
    _case("zero cotangent", (4, 9), 0.4, dy=zeros),
    _case("a large cotangent", (4, 9), 0.4, dy=lambda *s: normal(*s, spread=1e30)),
    _case("a layer of BERT, small", (2, 12, 17, 17), 0.1),
]
