from cases.case import Case
from cases.layer_norm_family import SHAPES, rows


def _case(title, shape, axis, more):
    s, attributes = rows(title, shape, axis, centred=True, **more)
    return Case(
        title,
        Y_grad=s["dY"],
        X=s["X"],
        scale=s["scale"],
        mean=s["mean"],
        inv_std_dev=s["inv"],
        **attributes,
    )


CASES = [_case(*row) for row in SHAPES]
