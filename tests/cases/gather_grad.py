import numpy as np

from cases.case import Case
from cases.samples import exactly, integers, normal


def _case(title, shape, count, axis=None, *, low=0, high=None, dtype=np.int64, indices=None):
    """Gather `count` (a shape) random rows, or the given indices, of X along the axis."""
    at = (axis or 0) % len(shape)
    high = shape[at] if high is None else high
    draw = (
        exactly(np.asarray(indices, dtype))
        if indices is not None
        else integers(*count, low=low, high=high, dtype=dtype)
    )
    count = np.shape(indices) if indices is not None else count
    return Case(title, shape=exactly(np.array(shape, np.int64)), indices=draw,
                dY=normal(*shape[:at], *count, *shape[at + 1 :]), **({} if axis is None else {"axis": axis}))  # fmt: skip


CASES = [
    _case("rows of a matrix", (10, 6), (4,)),
    _case("int32 indices", (10, 6), (4,), dtype=np.int32),
    _case("every row once", (5, 8), None, indices=[3, 1, 4, 0, 2]),
    _case("one row many times", (5, 8), None, indices=[2] * 100),
    _case("one row many times, wide", (3, 1500), None, indices=[1] * 70),
    _case("repeated rows", (4, 8), (50,)),
    _case("negative indices", (7, 5), (12,), low=-7),
    _case("negative indices, int32", (7, 5), (12,), low=-7, dtype=np.int32),
    _case("negative and positive of the same row", (7, 5), None, indices=[-7, 0, -1, 6]),
    _case("a scalar index", (7, 5), None, indices=3),
    _case("a scalar index, last axis", (7, 5), None, 1, indices=-2),
    _case("a table of indices", (9, 4), (3, 5)),
    _case("three dims of indices", (9, 4), (2, 3, 2)),
    _case("tokens of a small vocabulary", (300, 24), (4, 17)),
    _case("tokens of a vocabulary, int32", (3001, 40), (2, 64), dtype=np.int32),
    _case("a vector", (11,), (6,)),
    _case("a vector, repeated", (5,), (600,)),
    _case("a vector, long", (70_000,), (300,)),
    _case("axis 1", (3, 8, 5), (4,), 1),
    _case("axis 1, repeated", (3, 8, 5), (40,), 1),
    _case("axis 1, table of indices", (3, 8, 5), (2, 3), 1),
    _case("last axis", (6, 9), (5,), 1),
    _case("last axis, counted from the end", (6, 9), (5,), -1),
    _case("middle axis, counted from the end", (2, 6, 9), (5,), -2),
    _case("last axis of four", (2, 3, 4, 7), (9,), 3),
    _case("first axis of four", (5, 3, 2, 2), (9,), 0),
    _case("axis 2 of four", (2, 3, 6, 5), (4, 2), 2),
    _case("no indices", (5, 4), (0,)),
    _case("no indices, int32", (5, 4), (0,), dtype=np.int32),
    _case("an empty table of indices", (5, 4), (2, 0)),
    _case("no columns", (5, 0), (3,)),
    _case("an empty outer axis", (0, 5, 3), (4,), 1),
    _case("no rows and no indices", (0, 4), (0,)),
    _case("one row", (1, 16), (10,)),
    _case("one column", (40, 1), (25,)),
    _case("three columns", (400, 3), (125,)),
    _case("columns that end a register early", (12, 77), (20,)),
    _case("more columns than one piece", (6, 2500), (9,)),
    _case("more rows than one piece", (5000, 20), (64,)),
    _case("only the first row", (50, 9), None, indices=[0] * 33),
    _case("only the last row", (50, 9), None, indices=[49] * 33),
    _case("sorted indices", (20, 6), None, indices=sorted([3, 7, 7, 7, 9, 12, 19, 19])),
    _case("descending indices", (20, 6), None, indices=[19, 18, 5, 5, 4, 0]),
]
