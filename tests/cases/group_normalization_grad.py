from cases.case import Case
from cases.channel_norm_family import SHAPES, parts
from cases.samples import normal, ones, uniform, zeros


def _case(title, shape, more, groups=2, *, rtol=None, why="", **also):
    dy, x, scale, attributes = parts(shape, **more, **also)
    return Case(title, dY=dy, X=x, scale=scale, num_groups=groups, rtol=rtol, why=why, **attributes)


def _relu(title, shape, groups=2, y=normal, **also):
    """`y` is what the Relu gave; half of it lies above 0, whatever was normalised."""
    dy, x, scale, attributes = parts(shape)
    inputs = dict(dY=dy, X=x, scale=scale, Y=y(*shape), **also)
    return Case(title, **inputs, num_groups=groups, **attributes)


def _added(title, shape, groups=2):
    dy, x, scale, attributes = parts(shape)
    inputs = dict(dY=dy, X=x, scale=scale, added=normal(*shape))
    return Case(title, **inputs, num_groups=groups, **attributes)


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
    _relu("behind a Relu", (2, 6, 5, 5), 3),
    _relu("behind a Relu, many scales", (4, 104, 8, 8), 8),
    _relu("behind a Relu, large", (2, 16, 70, 71), 2),
    _relu("behind a Relu, few scales", (2, 8, 70, 71), 2),
    _relu("behind a Relu, rows of a register and one", (3, 12, 9)),
    _relu("behind a Relu that gave nothing but 0", (2, 12, 5, 5), y=zeros),
    _relu("behind a Relu that cut nothing", (2, 12, 5, 5), y=ones),
    _added("added to something", (2, 6, 5, 5), 3),
    _added("added to something, large", (2, 16, 70, 71)),
    _added("added to something, rows of a register and one", (3, 12, 9)),
    _relu("behind a Relu, added to something", (2, 12, 5, 7), added=normal(2, 12, 5, 7)),
    _case("without spatial dims", (5, 12), {}, 3),
    _case("without spatial dims, one group", (5, 12), {}, 1),
]
