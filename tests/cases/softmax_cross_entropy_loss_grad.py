from cases.case import Case
from cases.cross_entropy_family import ROWS, parts


def _case(title, shape, more):
    s, attributes = parts(shape, **more)
    if "ignore" in more:
        attributes["ignore_index"] = more["ignore"]
    optional = {"weight": s["weights"]} if "weights" in s else {}
    return Case(
        title, dY=s["dY"], log_prob=s["log_prob"], label=s["labels"], **optional, **attributes
    )


CASES = [
    *(_case(*row) for row in ROWS),
    _case("every label ignored: all 0", (4, 5), dict(ignore=-1, ignore_all=True)),
]
