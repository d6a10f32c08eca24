from cases.case import Case
from cases.layer_norm_family import SHAPES, rows


def _case(title, shape, axis, more):
    s, attributes = rows(title, shape, axis, centred=False, **more)
    return Case(
        title, Y_grad=s["dY"], X=s["X"], scale=s["scale"], inv_std_var=s["inv"], **attributes
    )


CASES = [_case(*row) for row in SHAPES]
