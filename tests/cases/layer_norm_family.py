"""The rows that the three layer normalisations share: shapes, axes, and statistics that belong to the data."""

from __future__ import annotations

import numpy as np

from cases.samples import normal, ones, uniform, zeros

# title, shape, axis, and what else is special
SHAPES = [
    ("one row", (1, 16), -1, {}),
    ("a few rows", (5, 16), -1, {}),
    ("rows of an odd length", (6, 13), -1, {}),
    ("rows shorter than a register", (9, 3), -1, {}),
    ("a vector: one row", (24,), -1, {}),
    ("a vector, axis 0", (24,), 0, {}),
    ("three dims, last axis", (2, 5, 12), -1, {}),
    ("three dims, axis 2", (2, 5, 12), 2, {}),
    ("three dims, two normalised axes", (4, 3, 10), 1, {}),
    ("three dims, all axes", (4, 3, 10), 0, {}),
    ("counted from the end, two axes", (4, 3, 10), -2, {}),
    ("four dims, axis 1", (3, 4, 5, 6), 1, {}),
    ("four dims, axis 2", (3, 4, 5, 6), 2, {}),
    ("four dims, axis 3", (3, 4, 5, 6), 3, {}),
    ("five dims, axis 3", (2, 2, 3, 4, 5), 3, {}),
    ("no rows", (0, 8), -1, {}),
    ("no columns", (3, 0), -1, {}),
    ("nothing at all", (0, 0), 1, {}),
    ("an empty batch of images", (0, 3, 4, 4), 1, {}),
    ("a layer of a small transformer", (2, 17, 64), -1, {}),
    ("a width of BERT", (3, 11, 768), -1, {}),
    ("more rows than one block", (1500, 24), -1, {}),
    ("many short rows", (9000, 4), -1, {}),
    ("as many rows as a register, and one", (9, 32), -1, {}),
    ("four rows at once, and three", (7, 40), -1, {}),
    ("columns that end a register early", (4, 8 * 9 + 5), -1, {}),
    ("a row longer than a block of sums", (3, 5000), -1, {}),
    ("a long row in pieces", (2, 16385), -1, {}),
    ("one very long row", (1, 70003), -1, {}),
    ("long rows of an image", (3, 2, 97, 101), 1, {}),
    ("statistics without the normalised axes", (4, 5, 6), -1, dict(keepdims=False)),
    ("statistics without the axes, two normalised", (4, 5, 6), 1, dict(keepdims=False)),
    ("zero cotangent", (4, 20), -1, dict(dy=zeros)),
    ("equal cotangents", (4, 20), -1, dict(dy=ones)),
    ("large values", (4, 20), -1, dict(spread=1e4)),
    ("small values", (4, 20), -1, dict(spread=1e-4)),
    ("a large cotangent", (4, 20), -1, dict(dy=lambda *s: normal(*s, spread=1e5))),
    ("unit scale", (5, 18), -1, dict(scale=ones)),
    ("scales of both signs", (5, 18), -1, dict(scale=lambda *s: normal(*s, spread=2.0))),
    (
        "a wide range of scales",
        (5, 33),
        -1,
        dict(scale=lambda *s: lambda rng: 10.0 ** rng.uniform(-2, 2, s)),
    ),
    ("uniform data", (8, 31), -1, dict(x=lambda *s: uniform(*s, low=0.0, high=3.0))),
]

# Those whose X_grad is added to something: short, long and uneven rows.
ADDED = [
    ("a few rows", (5, 16), -1, {}),
    ("rows of an odd length", (7, 13), -1, {}),
    ("a layer of a small transformer", (2, 17, 64), -1, {}),
    ("a long row in pieces", (2, 16385), -1, {}),
    ("two normalised axes", (4, 3, 10), 1, {}),
]


def rows(title, shape, axis, *, centred, keepdims=True, spread=1.0, dy=normal, x=None, scale=None):
    """Samples by name: dY, X, scale and bias, and the statistics of X as the forward operator gives them."""
    first = axis % len(shape)
    axes = tuple(range(first, len(shape)))
    draw_x = x(*shape) if x else normal(*shape, spread=spread)
    draw_scale = scale(*shape[first:]) if scale else uniform(*shape[first:], low=0.5, high=1.5)

    def parts():
        rng = np.random.default_rng(len(title))
        data = np.asarray(draw_x(rng), np.float32).astype(np.float64)
        with np.errstate(all="ignore"):
            count = max(int(np.prod(shape[first:])), 1)
            mean = (
                data.sum(axes, keepdims=True) / count
                if centred
                else np.zeros([*shape[:first], *[1] * len(axes)])
            )
            variance = ((data - mean) ** 2).sum(axes, keepdims=True) / count
        inv = 1 / np.sqrt(variance + 1e-5 * spread**2)
        weights, bias = np.asarray(draw_scale(rng)), rng.normal(0, 1, shape[first:])
        statistics = (mean, inv) if keepdims else (a.reshape(shape[:first]) for a in (mean, inv))
        return dict(zip(("mean", "inv"), statistics, strict=True), X=data, scale=weights, bias=bias)

    def part(name):
        return lambda rng: parts()[name]

    return dict(dY=dy(*shape), **{k: part(k) for k in ("X", "scale", "bias", "mean", "inv")}), (
        {} if axis == -1 else {"axis": axis}
    )
