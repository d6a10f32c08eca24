"""The rows that both gelus with a bias share."""

from __future__ import annotations

from cases.case import Case
from cases.pointwise import INF, NAN
from cases.samples import normal, ones, ramp, values, zeros


def bias_gelu_cases() -> list[Case]:
    return [
        Case(
            "no bias to speak of",
            dY=ones(3, 4_001),
            X=lambda rng: ramp(12_003, -9, 9)(rng).reshape(3, 4_001),
            B=zeros(4_001),
        ),
        Case("a vector", dY=normal(6), X=normal(6), B=zeros(6)),
        Case(
            "exact sums",
            dY=normal(3, 4),
            X=lambda rng: rng.integers(-8, 8, (3, 4)) / 4,
            B=values(0.5, -0.25, 1.0, 0.0),
        ),
        Case(
            "three dims",
            dY=normal(2, 3, 8),
            X=lambda rng: rng.integers(-64, 64, (2, 3, 8)) / 16,
            B=lambda rng: rng.integers(-64, 64, 8) / 16,
        ),
        Case(
            "one channel",
            dY=normal(9, 1),
            X=lambda rng: rng.integers(-64, 64, (9, 1)) / 16,
            B=values(0.5),
        ),
        Case(
            "an odd number of channels",
            dY=normal(33, 17),
            X=lambda rng: rng.integers(-64, 64, (33, 17)) / 16,
            B=lambda rng: rng.integers(-64, 64, 17) / 16,
        ),
        Case(
            "many short rows",
            dY=normal(20_000, 3),
            X=lambda rng: rng.integers(-64, 64, (20_000, 3)) / 16,
            B=values(0.5, 1.0, -2.0),
        ),
        Case(
            "one row of many channels",
            dY=normal(1, 70_001),
            X=lambda rng: rng.integers(-64, 64, (1, 70_001)) / 16,
            B=lambda rng: rng.integers(-64, 64, 70_001) / 16,
        ),
        Case("no rows", dY=normal(0, 4), X=normal(0, 4), B=zeros(4)),
        Case("no channels", dY=normal(3, 0), X=normal(3, 0), B=zeros(0)),
        Case(
            "infinity gives the limit",
            dY=ones(1, 2),
            X=lambda rng: values(INF, -INF)(rng)[None],
            B=zeros(2),
        ),
        Case("NaN in B reaches its channel only", dY=ones(3, 2), X=zeros(3, 2), B=values(NAN, 0.0)),
    ]
