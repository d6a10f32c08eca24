import numpy as np

from cases.case import Case
from cases.samples import exactly, normal


def _case(
    title, shape, tuples, depth, batch_dims=0, *, negative=False, dtype=np.int64, indices=None
):
    """Random tuples of `depth` places, `tuples` (a shape) of them, into X of `shape` behind the batch dims."""
    limits = np.array(shape[batch_dims : batch_dims + depth])

    def draw(rng):
        return rng.integers(
            -limits if negative else 0 * limits, np.maximum(limits, 1), (*tuples, depth)
        ).astype(dtype)

    sample = draw if indices is None else exactly(np.asarray(indices, dtype))
    return Case(title, shape=exactly(np.array(shape, np.int64)), indices=sample,
                update=normal(*tuples, *shape[batch_dims + depth :]), **({"batch_dims": batch_dims} if batch_dims else {}))  # fmt: skip


def _both(title, *arguments, **more):
    return [
        _case(title, *arguments, **more),
        _case(title + ", int32", *arguments, dtype=np.int32, **more),
    ]


CASES = [
    *_both("elements of a matrix", (5, 6), (4,), 2),
    *_both("rows of a matrix", (5, 6), (4,), 1),
    *_both("negative places", (5, 6), (7,), 2, negative=True),
    *_both("repeated places", (2, 3), (60,), 2),
    *_both("rows repeated", (3, 20), (50,), 1),
    *_both("a table of places", (4, 5, 6), (3, 2), 3),
    *_both("slices of three dims", (4, 5, 6), (7,), 2),
    *_both("slabs of three dims", (4, 5, 6), (7,), 1),
    *_both("one batch dim", (3, 5, 6), (3, 4), 1, 1),
    *_both("one batch dim, elements", (3, 5, 6), (3, 4), 2, 1),
    *_both("two batch dims", (2, 3, 5, 6), (2, 3, 4), 1, 2),
    *_both("two batch dims, elements", (2, 3, 5, 6), (2, 3, 4), 2, 2),
    *_both("one tuple per batch entry", (6, 5, 4), (6,), 1, 1),
    *_both("no tuples", (4, 5), (0,), 2),
    _case("a vector", (9,), (5,), 1),
    _case("one tuple", (4, 5), (), 2),
    _case("one tuple, a row", (4, 5), (), 1),
    _case("an empty batch", (0, 4, 5), (0, 3), 1, 1),
    _case("empty slices", (4, 0), (3,), 1),
    _case("many tuples", (50, 40), (3000,), 2),
    _case("many rows", (900, 24), (300,), 1),
    _case("a large X of elements", (300, 250), (400,), 2),
    _case("wide slices", (5, 2, 1300), (6,), 1),
    _case("four dims deep", (3, 4, 2, 5), (20,), 4),
    _case("five dims, three deep", (2, 3, 2, 3, 4), (9,), 3),
    _case("negative places in a batch", (3, 5, 6), (3, 8), 2, 1, negative=True),
    _case("slices that end a register early", (6, 77), (9,), 1),
    _case("the same row from both ends", (4, 9), (2,), 1, indices=[[3], [-1]]),
    _case("slices of three elements", (100, 3), (70,), 1),
]
