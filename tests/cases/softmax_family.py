"""The rows that the four gradients of Softmax and LogSoftmax share; `y` samples what the forward operator gave."""

from __future__ import annotations

from cases.case import Case
from cases.samples import normal, ones, zeros


def along_axis_cases(y) -> list[Case]:
    def case(title, *shape, axis=-1, dy=normal, **more):
        return Case(
            title,
            dY=dy(*shape),
            Y=y(*shape, axis=axis),
            **({} if axis == -1 else {"axis": axis}),
            **more,
        )

    return [
        case("last axis", 4, 7),
        case("first axis of three", 5, 3, 4, axis=0),
        case("middle axis", 2, 5, 3, axis=1),
        case("middle axis, counted from the end", 2, 5, 3, axis=-2),
        case("a vector", 11),
        case("a single class", 6, 1),
        case("one class on a middle axis", 3, 1, 4, axis=1),
        case("an empty batch", 0, 7),
        case("no classes", 3, 0),
        case("no columns", 3, 4, 0, axis=1),
        case("columns in a full stripe", 2, 9, 64, axis=1),
        case("columns in stripes and a rest", 3, 70, 147, axis=1),
        case("few columns", 40, 33, 3, axis=1),
        case("a vocabulary", 3, 32_003),
        case("one long row, cut into blocks", 300_007),
        case("many short rows", 3_000, 10),
        case("equal cotangents", 5, 12, dy=ones),
        case("zero cotangents", 5, 12, dy=zeros),
        case("five dims, axis 2", 2, 2, 6, 2, 3, axis=2),
        Case("a scalar", dY=normal(), Y=lambda rng: y(1)(rng).reshape(())),
    ]


def flattened_cases(y) -> list[Case]:
    def case(title, *shape, axis=None, rows, **more):
        """`rows` is the shape after flattening, in which Y is normalised."""
        sample = lambda rng: y(*rows)(rng).reshape(shape)  # noqa: E731
        return Case(
            title, dY=normal(*shape), Y=sample, **({} if axis is None else {"axis": axis}), **more
        )

    return [
        case("a matrix", 4, 7, rows=(4, 7)),
        case("three dims at 1", 3, 4, 5, rows=(3, 20)),
        case("three dims at 0: one row", 3, 4, 5, axis=0, rows=(1, 60)),
        case("three dims at 2", 3, 4, 5, axis=2, rows=(12, 5)),
        case("counted from the end", 3, 4, 5, axis=-2, rows=(3, 20)),
        case("a vector at 0", 9, axis=0, rows=(1, 9)),
        case("four dims at 1", 2, 3, 4, 5, rows=(2, 60)),
        case("a single class", 6, 1, rows=(6, 1)),
        case("an empty batch", 0, 7, rows=(0, 7)),
        case("no classes", 3, 0, rows=(3, 0)),
        case("a vocabulary", 3, 32_003, rows=(3, 32_003)),
        case("one long row, cut into blocks", 1, 300_007, rows=(1, 300_007)),
        case("many short rows", 3_000, 10, rows=(3_000, 10)),
    ]
