import zlib

import numpy as np

from cases.case import Case
from cases.channel_norm_family import SHAPES, parts
from cases.samples import uniform

FAR = dict(dy=lambda *shape: uniform(*shape, low=-1.1, high=-0.9))
VECTORS = [
    ("vectors", (30, 12), {}),
    ("vectors of an odd width", (30, 13), {}),
    ("one channel of vectors", (64, 1), {}),
    ("vectors of cotangents far from 0", (63, 1), FAR),
    ("many vectors", (5000, 20), {}),
    ("wide vectors", (40, 3001), {}),
    ("no vectors", (0, 9), {}),
    ("two vectors", (3, 16), {}),
    ("one channel", (3, 1, 9, 9), {}),
    ("no channels", (3, 0, 4, 4), {}),
    ("two channels", (3, 2, 60, 61), {}),
]


def _case(title, shape, more):
    dy, x, scale, _ = parts(shape, **more)
    axes = (0, *range(2, len(shape)))

    def data():
        return np.asarray(
            x(np.random.default_rng(zlib.crc32(title.encode()) + 1)), np.float32
        ).astype(np.float64)

    def mean(rng):
        return data().mean(axes) if data().size else np.zeros(shape[1])

    def inverse_deviation(rng):
        return 1 / np.sqrt(data().var(axes) + 1e-5) if data().size else np.ones(shape[1])

    return Case(
        title,
        dY=dy,
        X=lambda rng: data(),
        scale=scale,
        mean=mean,
        variance=inverse_deviation,
        epsilon=1e-5,
    )


CASES = [_case(*row) for row in [*SHAPES, *VECTORS]]
