import numpy as np

from cases.case import Case
from cases.cross_entropy_family import ROWS, parts
from cases.samples import exactly


def _case(title, shape, more, **also):
    s, attributes = parts(shape, **more)
    optional = {"weights": s["weights"]} if "weights" in s else {}
    if "ignore" in more:
        optional["ignore_index"] = exactly(np.array(more["ignore"], np.int64))
    return Case(title, scores=s["scores"], labels=s["labels"], **optional, **attributes, **also)


CASES = [
    *(_case(*row) for row in ROWS if row[0] not in ("one class", "very confident scores")),
    _case("every label ignored, sum: 0", (4, 5), dict(ignore=-1, ignore_all=True, reduction="sum")),
    _case(
        "every label ignored: 0, as the old kernel gives",
        (4, 5),
        dict(ignore=-1, ignore_all=True),
    ),
]
