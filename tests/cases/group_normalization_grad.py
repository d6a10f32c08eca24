from cases.case import Case
from cases.channel_norm_family import SHAPES, parts
from cases.samples import normal, uniform


def _case(title, shape, more, groups=2, *, rtol=None, why="", **also):
    dy, x, scale, attributes = parts(shape, **more, **also)
    return Case(title, dY=dy, X=x, scale=scale, num_groups=groups, rtol=rtol, why=why, **attributes)


CASES = [
    *(_case(*row) for row in SHAPES),
    _case("one group", (2, 6, 5, 5), {}, 1),
    _case("a group per channel", (2, 6, 5, 5), {}, 6),
    _case("three groups", (2, 6, 5, 5), {}, 3),
    _case("32 groups of a U-Net", (2, 64, 8, 8), {}, 32),
    _case("one large group", (1, 6, 60, 61), {}, 1),
    _case("a scale per group, as opset 18", (2, 6, 5, 5), {}, 3, scales=3),
    _case(
        "a scale per group, one group",
        (2, 6, 5, 5),
        {},
        1,
        scales=1,
    ),
    _case("a scale per group, large", (2, 8, 70, 71), {}, 2, scales=2),
    Case(
        "a scale as it lies in an exported product",
        dY=normal(2, 6, 5, 5),
        X=normal(2, 6, 5, 5),
        scale=uniform(6, 1, 1, low=0.5, high=1.5),
        num_groups=3,
    ),
    _case("without spatial dims", (5, 12), {}, 3),
    _case("without spatial dims, one group", (5, 12), {}, 1),
]
