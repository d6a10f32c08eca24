import numpy as np

from cases.case import Case
from cases.samples import exactly, integers, normal


def label_samples(rows, classes, ignored, kind=np.int64):
    """Labels, every third of them ignored where a label is."""
    if ignored is None:
        return {"labels": integers(*rows, low=0, high=classes, dtype=kind)}
    places = np.arange(np.prod(rows)).reshape(rows)
    labels = np.where(places % 3 == 1, ignored, places % classes).astype(kind)
    return {"labels": exactly(labels), "ignore_index": exactly(np.array(ignored, np.int64))}


def _case(title, rows, depth, classes, ignored=None, kind=np.int64, **more):
    shape = (classes, depth) if more.get("transB") else (depth, classes)
    return Case(title, X=normal(*rows, depth), W=normal(*shape, spread=0.3),
                **label_samples(rows, classes, ignored, kind), **more)  # fmt: skip


CASES = [
    _case("a few rows", (5,), 8, 7),
    _case("rows of classes", (5,), 8, 7, transB=1),
    _case("sum", (5,), 8, 7, reduction="sum"),
    _case("one row", (1,), 16, 40),
    _case("one class: 0", (4,), 8, 1),
    _case("rows of a batch", (2, 3), 16, 9),
    _case("no rows: 0", (0,), 8, 7),
    _case("some labels are ignored", (7,), 8, 7, ignored=-100),
    _case("some are ignored, rows of classes", (2, 6), 8, 7, ignored=-100, transB=1),
    _case("a class is ignored, sum", (7,), 8, 7, ignored=3, reduction="sum"),
    _case("all labels are ignored: 0", (1, 2), 8, 1, ignored=0),
    _case("labels of 32 bits", (3,), 8, 5, kind=np.int32),
    _case("more than one piece", (7,), 33, 141),
    _case("more than one piece, rows of classes", (7,), 33, 141, transB=1),
    _case("deeper than one block of depth", (6,), 530, 270),
    _case("deeper than one block of depth, rows of classes", (6,), 530, 270, transB=1),
    _case("more rows than exist at a time", (1100,), 12, 9),
    _case("more rows than exist at a time, some ignored", (1700,), 12, 9, ignored=-1),
]
