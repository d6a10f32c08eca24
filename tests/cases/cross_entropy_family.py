"""The rows that the loss and its gradients share."""

from __future__ import annotations

import numpy as np

# title, shape of the scores, and what is special: weights, ignore, reduction, dtype, spread, labels
ROWS = [
    ("a few rows", (5, 7), {}),
    ("int32 labels", (5, 7), dict(dtype=np.int32)),
    ("sum", (5, 7), dict(reduction="sum")),
    ("none", (5, 7), dict(reduction="none")),
    ("weights", (6, 7), dict(weights=True)),
    ("weights, sum", (6, 7), dict(weights=True, reduction="sum")),
    ("weights, none", (6, 7), dict(weights=True, reduction="none")),
    ("weights, int32 labels", (6, 7), dict(weights=True, dtype=np.int32)),
    ("some labels ignored", (12, 5), dict(ignore=2)),
    ("some labels ignored, sum", (12, 5), dict(ignore=2, reduction="sum")),
    ("some labels ignored, none", (12, 5), dict(ignore=2, reduction="none")),
    ("an ignored label below 0", (12, 5), dict(ignore=-100)),
    ("an ignored label below 0, none", (12, 5), dict(ignore=-100, reduction="none")),
    ("an ignored label of no class", (12, 5), dict(ignore=255)),
    ("an ignored label below 0, int32", (12, 5), dict(ignore=-1, dtype=np.int32)),
    ("weights and an ignored label", (12, 5), dict(weights=True, ignore=1)),
    ("weights and an ignored label, sum", (12, 5), dict(weights=True, ignore=1, reduction="sum")),
    ("weights and an ignored label, none", (12, 5), dict(weights=True, ignore=1, reduction="none")),
    ("one class", (6, 1), dict(reduction="sum")),
    ("two classes", (6, 2), {}),
    ("one row", (1, 9), {}),
    ("classes of one register", (3, 8), {}),
    ("classes that end a register early", (3, 77), {}),
    ("a vocabulary", (3, 30_522), {}),
    ("a vocabulary, weights and an ignored label", (4, 9_001), dict(weights=True, ignore=-100)),
    ("many rows", (3000, 10), {}),
    ("pixels", (2, 5, 6, 7), {}),
    ("pixels, sum", (2, 5, 6, 7), dict(reduction="sum")),
    ("pixels, none", (2, 5, 6, 7), dict(reduction="none")),
    ("pixels, weights", (2, 5, 6, 7), dict(weights=True)),
    ("pixels, an ignored label", (2, 5, 6, 7), dict(ignore=-100)),
    ("pixels, all of it", (2, 5, 6, 7), dict(ignore=3, weights=True, dtype=np.int32)),
    ("a sequence", (3, 6, 11), {}),
    ("a sequence of one", (3, 6, 1), {}),
    ("three dims", (2, 4, 3, 2, 5), dict(weights=True)),
    ("many pixels", (1, 3, 40, 50), {}),
    ("many classes of pixels", (2, 150, 3, 3), {}),
    ("confident scores", (5, 7), dict(spread=20.0)),
    ("very confident scores", (5, 7), dict(spread=200.0)),
    ("nearly even scores", (5, 7), dict(spread=1e-3)),
    ("an empty batch, sum", (0, 7), dict(reduction="sum")),
    ("an empty batch, none", (0, 7), dict(reduction="none")),
    ("no pixels, none", (2, 5, 0), dict(reduction="none")),
]


def parts(
    shape,
    *,
    weights=False,
    ignore=None,
    reduction="mean",
    dtype=np.int64,
    spread=1.0,
    ignore_all=False,
):
    """Samples: scores, log_prob, labels, dY, and weights; the attributes."""
    classes, places = shape[1], (shape[0], *shape[2:])

    def scores(rng):
        return np.random.default_rng(3).normal(0, spread, shape)

    def log_prob(rng):
        x = scores(rng)
        x = x - x.max(1, keepdims=True, initial=-np.inf)
        return x - np.log(np.exp(x).sum(1, keepdims=True))

    def labels(rng):
        drawn = rng.integers(0, classes, places)
        if ignore is not None:
            drawn = np.where(rng.random(places) < (1.1 if ignore_all else 0.4), ignore, drawn)
        return drawn.astype(dtype)

    def dy(rng):
        return rng.normal(0, 1, places if reduction == "none" else ()) + 2.0

    samples = dict(scores=scores, log_prob=log_prob, labels=labels, dY=dy)
    if weights:
        samples["weights"] = lambda rng: rng.uniform(0.2, 2.0, classes)
    return samples, {} if reduction == "mean" else {"reduction": reduction}
