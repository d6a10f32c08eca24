import numpy as np

from cases.case import Case
from cases.samples import exactly, normal

FAR = 2**31 - 1


def _taken(dim, start, end, step):
    start, end = (v + dim if v < 0 else v for v in (start, end))
    if step > 0:
        return len(range(min(max(start, 0), dim), min(max(end, 0), dim), step))
    return len(range(min(max(start, 0), dim - 1), min(max(end, -1), dim - 1), step))


def _case(title, shape, starts, ends, axes=None, steps=None, *, dtype=np.int64):
    out = list(shape)
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = i if axes is None else axes[i]
        out[axis] = _taken(shape[axis], start, end, 1 if steps is None else steps[i])
    lists = {
        k: exactly(np.array(v, dtype))
        for k, v in dict(starts=starts, ends=ends, axes=axes, steps=steps).items()
        if v is not None
    }
    return Case(title, dY=normal(*out), shape=exactly(np.array(shape, np.int64)), **lists)


def _both(title, *arguments):
    return [_case(title, *arguments), _case(title + ", int32", *arguments, dtype=np.int32)]


CASES = [
    *_both("a part of a vector", (10,), [2], [7]),
    *_both("all of a vector", (10,), [0], [FAR]),
    *_both("rows of a matrix", (8, 5), [2], [6]),
    *_both("columns of a matrix", (8, 5), [1], [4], [1]),
    *_both("a corner", (8, 9), [1, 2], [5, 9]),
    *_both("counted from the end", (8, 9), [-5], [-1], [0]),
    *_both("a negative axis", (8, 9), [2], [6], [-1]),
    *_both("every second", (9, 4), [0], [9], [0], [2]),
    *_both("every third column", (4, 20), [1], [20], [1], [3]),
    *_both("backwards", (7, 3), [-1], [-FAR], [0], [-1]),
    *_both("backwards by two", (4, 9), [8], [0], [1], [-2]),
    *_both(
        "three axes, steps of both signs", (6, 7, 8), [1, 6, 0], [6, 0, 8], [0, 1, 2], [2, -3, 1]
    ),
    *_both("axes out of order", (6, 7, 8), [1, 2], [4, 6], [2, 0]),
    *_both("ends beyond the end", (6, 4), [3], [1000]),
    *_both("starts before the beginning", (6, 4), [-1000], [3]),
    *_both("nothing taken", (6, 4), [4], [2]),
    *_both("a step longer than the axis", (6, 4), [1], [6], [0], [100]),
    _case("a step of the largest number", (6, 4), [1], [6], [0], [2**62]),
    _case("a step of the smallest number", (6, 4), [5], [-FAR], [0], [-(2**62)]),
    _case("the middle axis", (3, 10, 4), [2], [9], [1]),
    _case("the middle axis, every second", (3, 10, 4), [1], [9], [1], [2]),
    _case("heads of an attention", (2, 5, 3, 8), [1], [2], [2]),
    _case("four dims, first and last", (4, 3, 2, 9), [1, 3], [3, 8], [0, 3]),
    _case("five dims", (2, 3, 4, 5, 6), [1, 1, 2], [3, 4, 5], [1, 2, 4]),
    _case("no axes at all", (3, 4), [], []),
    _case("an empty X", (0, 4), [0], [0]),
    _case("an empty last axis", (3, 0), [1], [2]),
    _case("a long vector", (100_000,), [11], [99_000]),
    _case("a long vector, every seventh", (100_000,), [3], [99_999], [0], [7]),
    _case("a long vector, backwards", (100_000,), [99_990], [5], [0], [-3]),
    _case("many rows", (3000, 20), [100], [2900]),
    _case("many rows, some columns", (3000, 20), [3], [17], [1]),
    _case("wide rows", (4, 40_000), [1], [3]),
]
