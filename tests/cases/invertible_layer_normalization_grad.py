from cases.case import Case
from cases.layer_norm_family import SHAPES, rows


def _case(title, shape, axis, more):
    s, attributes = rows(title, shape, axis, centred=True, **more)

    def y(rng):
        """What LayerNormalization gives for X."""
        x, mean, inv = (s[k](rng) for k in ("X", "mean", "inv"))
        statistics = [a.reshape([*a.shape, *[1] * (x.ndim - a.ndim)]) for a in (mean, inv)]
        return (x - statistics[0]) * statistics[1] * s["scale"](rng) + s["bias"](rng)

    return Case(
        title,
        Y_grad=s["dY"],
        Y=y,
        scale=s["scale"],
        bias=s["bias"],
        inv_std_var=s["inv"],
        **attributes,
    )


CASES = [_case(*row) for row in SHAPES]
