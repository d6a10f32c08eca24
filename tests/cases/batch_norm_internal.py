from cases.batch_normalization_grad import VECTORS
from cases.case import Case
from cases.channel_norm_family import SHAPES, parts
from cases.samples import normal, uniform

BY_COTANGENT = {
    "zero cotangent",
    "cotangents of one sign",
    "a large cotangent",
    "a small cotangent",
}


def _case(title, shape, more, outputs=None, **attributes):
    """Numbers around 1: a mean near 0 has no relative accuracy to speak of."""
    _, x, scale, given = parts(shape, **{"shift": 1.0, **more})
    return Case(title, X=x, scale=scale, B=normal(shape[1]), input_mean=normal(shape[1]),
                input_var=uniform(shape[1], low=0.5, high=2.0), outputs=outputs, **given, **attributes)  # fmt: skip


CASES = [
    *(_case(*row) for row in [*SHAPES, *VECTORS] if row[0] not in BY_COTANGENT),
    _case("all of the old statistics kept", (2, 4, 5, 5), {}, momentum=1.0),
    _case("none of the old statistics kept", (2, 4, 5, 5), {}, momentum=0.0),
    _case("half of the old statistics kept", (2, 4, 5, 5), {}, momentum=0.5),
    _case("the input statistics", (2, 4, 5, 5), {}, training_mode=0),
    _case("a mean near 0", (3, 2, 60, 61), dict(shift=0.0)),
    _case("only Y", (2, 4, 5, 5), {}, outputs=("Y",)),
    _case(
        "Y and the running statistics",
        (2, 4, 5, 5),
        {},
        outputs=("Y", "running_mean", "running_var"),
    ),
]
