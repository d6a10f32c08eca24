import numpy as np

from cases.case import Case
from cases.cross_entropy_family import ROWS, parts
from cases.samples import exactly, normal


def _case(title, shape, more, bias=None):
    s, attributes = parts(shape, **more)
    optional = {"weight": s["weights"]} if "weights" in s else {}
    if "ignore" in more:
        optional["ignore_index"] = exactly(np.array(more["ignore"], np.int64))
    if bias:
        optional["bias"] = normal(*bias)
    return Case(
        title, dY=s["dY"], log_prob=s["log_prob"], label=s["labels"], **optional, **attributes
    )


CASES = [
    *(_case(*row) for row in ROWS),
    _case("every label ignored: all 0", (4, 5), dict(ignore=-1, ignore_all=True)),
    _case("a bias", (4, 5), {}, (4, 5)),
    _case("a bias of another shape", (4, 6), {}, (2, 12)),
    _case("a bias and an ignored label", (8, 6), dict(ignore=-1, weights=True), (8, 6)),
    _case("a bias for pixels", (2, 5, 3, 4), dict(ignore=2), (2, 5, 3, 4)),
    _case("only the bias remains", (4, 5), dict(ignore=-1, ignore_all=True), (4, 5)),
]
