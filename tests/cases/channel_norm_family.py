"""The shapes that batch, group and instance normalisation share: [images, channels, spatial dims]."""

from __future__ import annotations

from cases.samples import normal, ones, uniform, zeros

SHAPES = [
    ("a small image", (2, 4, 5, 6), {}),
    ("one image", (1, 4, 5, 6), {}),
    ("one dim", (3, 4, 17), {}),
    ("three dims", (2, 4, 3, 4, 5), {}),
    ("four dims", (2, 4, 2, 3, 2, 3), {}),
    ("rows of a register", (3, 4, 8), {}),
    ("rows of a register and one", (3, 4, 9), {}),
    ("rows shorter than a register", (5, 4, 3), {}),
    ("rows of two", (40, 8, 2), {}),
    ("seven by seven", (4, 16, 7, 7), {}),
    ("fourteen by fourteen", (2, 12, 14, 14), {}),
    ("an odd size", (2, 8, 13, 11), {}),
    ("many channels", (2, 300, 3, 3), {}),
    ("many images", (120, 4, 3, 3), {}),
    ("a large image", (1, 4, 90, 97), {}),
    ("rows in several pieces", (2, 4, 130, 131), {}),
    ("few channels, shared out", (2, 4, 120, 150), {}),
    ("one long row each", (1, 4, 40_001), {}),
    ("an empty batch", (0, 4, 5, 5), {}),
    ("an empty image", (2, 4, 0, 5), {}),
    ("zero cotangent", (2, 4, 5, 5), dict(dy=zeros)),
    ("cotangents of one sign", (2, 4, 5, 5), dict(dy=lambda *s: uniform(*s, low=0.5, high=1.5))),
    ("cotangents far from 0", (3, 4, 5, 7), dict(dy=lambda *s: uniform(*s, low=-1.2, high=-0.8))),
    ("a large cotangent", (2, 4, 5, 5), dict(dy=lambda *s: normal(*s, spread=1e5))),
    ("a small cotangent", (2, 4, 5, 5), dict(dy=lambda *s: normal(*s, spread=1e-5))),
    ("large values", (2, 4, 6, 7), dict(spread=1e3)),
    ("values around three", (2, 4, 6, 7), dict(shift=3.0)),
    ("uniform values", (2, 4, 6, 7), dict(x=lambda *s: uniform(*s, low=0, high=1))),
    ("scales of both signs", (2, 4, 6, 7), dict(scale=lambda *s: normal(*s, spread=2.0))),
    ("unit scale", (2, 4, 6, 7), dict(scale=ones)),
    (
        "zero scale in part",
        (2, 4, 6, 7),
        dict(scale=lambda *s: lambda rng: rng.permutation(s[0]) % 2.0),
    ),
    ("another epsilon", (2, 4, 6, 7), dict(attributes=dict(epsilon=1e-3))),
    ("a large epsilon", (2, 4, 6, 7), dict(attributes=dict(epsilon=1.0))),
]


def parts(
    shape, *, scales=None, dy=normal, spread=1.0, shift=0.0, x=None, scale=None, attributes=None
):
    """The samples dY, X and scale, and the attributes."""
    draw_x = x(*shape) if x else lambda rng: rng.normal(shift, spread, shape)
    count = shape[1] if scales is None else scales
    return (
        dy(*shape),
        draw_x,
        (scale or (lambda *s: uniform(*s, low=0.5, high=1.5)))(count),
        attributes or {},
    )
