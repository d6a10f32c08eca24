from cases.case import Case
from cases.channel_norm_family import SHAPES, parts


def _case(title, shape, more):
    dy, x, scale, attributes = parts(shape, **more)
    return Case(title, dY=dy, X=x, scale=scale, **attributes)


CASES = [
    *(_case(*row) for row in SHAPES if row[0] != "rows of two"),
    _case("one channel", (3, 1, 9, 9), {}),
    _case("no images of one channel", (0, 1, 4, 4), {}),
    _case("two channels", (3, 2, 60, 61), {}),
    _case("one channel of one image", (1, 1, 300, 301), {}),
    _case("many images of one channel", (300, 1, 4, 5), {}),
    _case("rows of four", (30, 8, 4), {}),
    _case("a wide image", (2, 3, 4, 333), {}),
    _case("a high image", (2, 3, 333, 4), {}),
    _case("five channels", (2, 5, 21, 22), {}),
]
