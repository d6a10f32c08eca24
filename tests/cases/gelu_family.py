"""The rows that every gelu shares."""

from __future__ import annotations

from cases.case import Case
from cases.pointwise import INF, NAN, pointwise_cases
from cases.samples import ones, ramp, values


def gelu_cases(**attributes) -> list[Case]:
    return [
        *pointwise_cases("X", -12, 12, **attributes),
        Case("where the derivative is 0", dY=ones(4_001), X=ramp(4_001, -0.8, -0.7), **attributes),
        Case("the far tails", dY=ones(4_001), X=ramp(4_001, -60, 60), **attributes),
        Case("huge inputs", dY=ones(4), X=values(1e10, -1e10, 1e30, -1e30), **attributes),
        Case("infinity gives the limit", dY=values(2.0, 2.0), X=values(INF, -INF), **attributes),
        Case("NaN in X", dY=ones(3), X=values(NAN, 1.0, NAN), **attributes),
        Case("signed zeros", dY=ones(2), X=values(0.0, -0.0), **attributes),
        Case("subnormal inputs", dY=ones(2), X=values(1e-40, -1e-40), **attributes),
    ]
