"""The rows that every pointwise gradient shares."""

from __future__ import annotations

from cases.case import Case
from cases.samples import normal, ones, ramp, values

INF = float("inf")
NAN = float("nan")


def pointwise_cases(second: str, low: float, high: float, **attributes) -> list[Case]:
    """Ordinary, degenerate and special inputs for dX = f(dY, second), which is defined on [low, high]."""

    def case(title, dy, x, **more):
        return Case(title, dY=dy, **{second: x}, **attributes, **more)

    def within(*shape):
        return lambda rng: rng.uniform(low, high, shape)

    return [
        case("a matrix", normal(5, 7), within(5, 7)),
        case("four dims", normal(2, 3, 4, 5), within(2, 3, 4, 5)),
        case("a scalar", normal(), within()),
        case("one element", normal(1), within(1)),
        case("no elements", normal(0), within(0)),
        case("no rows", normal(0, 4), within(0, 4)),
        case("a prime number of elements", normal(1009), within(1009)),
        case("several pieces of work", normal(100_003), within(100_003)),
        case("the whole curve", ones(20_001), ramp(20_001, low, high)),
        case("near zero", ones(2_001), ramp(2_001, max(low, -1e-3), 1e-3)),
        case("zero cotangents", lambda rng: rng.normal(size=50) * 0, within(50)),
        case("large and small cotangents", values(1e30, -1e30, 1e-30, -1e-30), within(4)),
        case("NaN in dY", values(NAN, 1.0, NAN), within(3)),
        case("eight axes", normal(1, 2, 1, 2, 1, 2, 1, 2), within(1, 2, 1, 2, 1, 2, 1, 2)),
    ]
