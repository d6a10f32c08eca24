"""What the gate and its gradient share: title, shape of X, attributes, and how X is drawn."""

from cases.samples import normal, uniform

SHAPES = [
    ("signals", (2, 6, 17), {}),
    ("rows", (5, 8), {}),
    ("the last axis", (3, 4, 10), dict(axis=-1)),
    ("the first axis", (6, 5), dict(axis=0)),
    ("a vector", (34,), dict(axis=0)),
    ("an image", (2, 4, 5, 7), {}),
    ("halves of one element", (9, 2), {}),
    ("a register and one", (3, 2, 17), {}),
    ("a layer of a WaveNet", (2, 64, 700), {}),
    ("many short halves", (9_001, 6), dict(axis=-1)),
    ("pieces that end within a half", (3, 2, 33_001), {}),
    ("an empty batch", (0, 4, 5), {}),
    ("an empty half", (3, 0, 5), {}),
    ("linear", (2, 6, 17), dict(form="linear")),
    ("linear, the last axis", (3, 4, 66), dict(form="linear", axis=-1)),
    ("linear, pieces that end within a half", (2, 2, 33_001), dict(form="linear")),
]
DRAWN = [
    ("saturated", (2, 4, 33), {}, lambda *s: normal(*s, spread=30.0)),
    ("small", (2, 4, 33), {}, lambda *s: normal(*s, spread=1e-4)),
    ("far above", (2, 4, 33), {}, lambda *s: uniform(*s, low=6.0, high=12.0)),
    ("far below", (2, 4, 33), {}, lambda *s: uniform(*s, low=-12.0, high=-6.0)),
    ("linear, saturated", (2, 4, 33), dict(form="linear"), lambda *s: normal(*s, spread=30.0)),
    (
        "linear, far below",
        (2, 4, 33),
        dict(form="linear"),
        lambda *s: uniform(*s, low=-20, high=-9),
    ),
]


def halved(shape, axis=1, **_):
    return tuple(d // 2 if a == axis % len(shape) else d for a, d in enumerate(shape))
