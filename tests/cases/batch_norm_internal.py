import numpy as np

from cases.batch_normalization_grad import VECTORS
from cases.case import Case
from cases.channel_norm_family import SHAPES, parts
from cases.samples import normal, uniform

BY_COTANGENT = {
    "zero cotangent",
    "cotangents of one sign",
    "cotangents far from 0",
    "vectors of cotangents far from 0",
    "a large cotangent",
    "a small cotangent",
}


def _case(title, shape, more, outputs=None, **attributes):
    """Numbers around 1: a mean near 0 has no relative accuracy to speak of."""
    _, x, scale, given = parts(shape, **{"shift": 1.0, **more})
    return Case(title, X=x, scale=scale, B=normal(shape[1]), input_mean=normal(shape[1]),
                input_var=uniform(shape[1], low=0.5, high=2.0), outputs=outputs, **given, **attributes)  # fmt: skip


def _plain(*shape):
    """Of these the low bits of the mean round every X − mean of a binade the same way, which adds up."""
    return lambda rng: np.random.default_rng((1, 88)).normal(size=shape)


def _mostly_zeros(*shape):
    """Their −mean, a thousand times, drifts where it is added to a sum of doubles."""

    def sample(rng):
        seeded = np.random.default_rng((0, 88))
        return seeded.normal(size=shape) * (seeded.random(shape) < 0.05)

    return sample


CASES = [
    *(_case(*row) for row in [*SHAPES, *VECTORS] if row[0] not in BY_COTANGENT),
    _case("all of the old statistics kept", (2, 4, 5, 5), {}, momentum=1.0),
    _case("none of the old statistics kept", (2, 4, 5, 5), {}, momentum=0.0),
    _case("half of the old statistics kept", (2, 4, 5, 5), {}, momentum=0.5),
    _case("the input statistics", (2, 4, 5, 5), {}, training_mode=0),
    _case("a mean near 0", (3, 2, 60, 61), dict(shift=0.0)),
    _case("a mean whose low bits are lost one way", (1, 1, 15, 15, 16), dict(x=_plain)),
    _case("a mean of little but zeros", (1009, 1, 1), dict(x=_mostly_zeros)),
    _case("only Y", (2, 4, 5, 5), {}, outputs=("Y",)),
    _case(
        "Y and the running statistics",
        (2, 4, 5, 5),
        {},
        outputs=("Y", "running_mean", "running_var"),
    ),
]
