from cases.case import Case
from cases.layer_norm_family import ADDED, SHAPES, rows
from cases.samples import normal


def _case(title, shape, axis, more, **also):
    s, attributes = rows(title, shape, axis, centred=True, **more)
    return Case(
        title,
        Y_grad=s["dY"],
        X=s["X"],
        scale=s["scale"],
        mean=s["mean"],
        inv_std_dev=s["inv"],
        **also,
        **attributes,
    )


CASES = [
    *(_case(*row) for row in SHAPES),
    *(_case(f"added to something: {row[0]}", *row[1:], added=normal(*row[1])) for row in ADDED),
]
