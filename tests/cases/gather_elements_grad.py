import numpy as np

from cases.case import Case
from cases.samples import exactly, integers, normal


def _case(title, shape, out, axis=None, *, low=0, dtype=np.int64, indices=None):
    """Indices of shape `out` into X of `shape`."""
    at = (axis or 0) % len(shape)
    draw = (
        exactly(np.asarray(indices, dtype))
        if indices is not None
        else integers(*out, low=low, high=max(shape[at], 1), dtype=dtype)
    )
    out = np.shape(indices) if indices is not None else out
    return Case(title, dY=normal(*out), shape=exactly(np.array(shape, np.int64)), indices=draw,
                **({} if axis is None else {"axis": axis}))  # fmt: skip


def _both(title, *arguments, **more):
    return [
        _case(title, *arguments, **more),
        _case(title + ", int32", *arguments, dtype=np.int32, **more),
    ]


CASES = [
    *_both("a matrix along axis 0", (5, 4), (3, 4)),
    *_both("a matrix along axis 1", (5, 4), (5, 7), 1),
    *_both("negative indices", (5, 4), (6, 4), low=-5),
    *_both("negative indices, axis 1", (5, 4), (5, 6), 1, low=-4),
    *_both("counted from the end", (2, 5, 4), (2, 9, 4), -2),
    *_both("fewer columns than X", (5, 9), (3, 4)),
    *_both("fewer rows than X", (9, 6), (4, 5), 1),
    *_both("three dims, a corner of X", (4, 5, 6), (2, 8, 3), 1),
    *_both("three dims, axis 0", (4, 5, 6), (3, 5, 6), 0),
    *_both("three dims, axis 2", (4, 5, 6), (4, 5, 2), 2),
    *_both("four dims, axis 1", (2, 5, 3, 4), (2, 2, 3, 4), 1),
    *_both("four dims, axis 2, a corner", (3, 4, 5, 6), (2, 3, 7, 4), 2),
    *_both("a vector", (9,), (14,)),
    *_both("no indices", (5, 4), (0, 4)),
    _case("nothing along another axis", (5, 4), (3, 0)),
    _case("an empty X", (0, 3), (0, 3)),
    _case("one place many times", (3, 2), None, indices=np.full((200, 2), 1)),
    _case("a long axis", (20_000, 2), (500, 2)),
    _case("long lines", (3, 9000), (3, 700), 1),
    _case("more columns than one stripe", (6, 700), (4, 650)),
    _case("many lines", (900, 40), (900, 8), 1),
    _case(
        "a permutation",
        (4, 6),
        None,
        1,
        indices=np.argsort(np.random.default_rng(0).normal(size=(4, 6)), 1),
    ),
    _case(
        "as top-k gives them",
        (8, 30),
        None,
        1,
        indices=np.argsort(np.random.default_rng(1).normal(size=(8, 30)), 1)[:, :5],
    ),
    _case("one label per row", (16, 10), (16, 1), 1),
    _case("one label per pixel", (2, 5, 6, 7), (2, 1, 6, 7), 1),
    _case("last axis, counted from the end", (3, 4, 5), (3, 4, 3), -1),
    _case("one element", (1,), (1,)),
]
