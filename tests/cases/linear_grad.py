import zlib

import numpy as np

from cases.case import Case
from cases.linear import LAYERS
from cases.samples import exactly, normal, ones


def layer(title, rows, k, n, outputs=None):
    return Case(title, dY=normal(*rows, n), X=normal(*rows, k), W=normal(k, n), outputs=outputs)


def joined(title, rows, k, n, outputs=None):
    """A layer whose dX is added to another gradient."""
    sizes = {"dY": (*rows, n), "X": (*rows, k), "W": (k, n), "added": (*rows, k)}
    return Case(title, **{name: normal(*size) for name, size in sizes.items()}, outputs=outputs)


def padded(title, rows, k, n, *zero, outputs=None, added=False):
    """A layer whose rows `zero` have no cotangents."""
    rng = np.random.default_rng(zlib.crc32(title.encode()))
    dy, x, w = (rng.normal(size=size).astype(np.float32) for size in ((rows, n), (rows, k), (k, n)))
    for rows_of_zeros in zero:
        dy[rows_of_zeros] = 0
    more = {"added": normal(rows, k)} if added else {}
    return Case(title, dY=exactly(dy), X=exactly(x), W=exactly(w), **more, outputs=outputs)


CASES = [
    *(layer(*given) for given in LAYERS),
    *(joined(f"{title}, added to something", *given) for title, *given in LAYERS),
    joined("dX alone, added to something", (40,), 50, 60, ("dX",)),
    joined("dW alone, and something that would be added", (40,), 50, 60, ("dW",)),
    padded("padding between, added to something", 300, 20, 30, slice(100, 190), slice(250, None), added=True),
    padded("no cotangents, added to something", 60, 20, 30, slice(None), added=True),
    padded("padding behind", 100, 20, 30, slice(60, None)),
    padded("padding before", 100, 20, 30, slice(40)),
    padded("padding behind two sentences", 200, 40, 33, slice(70, 100), slice(150, None)),
    padded("rows of zeros too few to leave out", 50, 20, 30, slice(10, 12), slice(30, 40)),
    padded("no cotangents", 60, 20, 30, slice(None)),
    padded("no cotangents, dW only", 60, 20, 30, slice(None), outputs=("dW",)),
    padded("padding, dX only", 300, 20, 30, slice(100, 290), outputs=("dX",)),
    padded("padding, dW only", 300, 20, 30, slice(100, 290), outputs=("dW",)),
    padded("more sentences than runs", 1700, 3, 5, np.arange(1700) // 17 * 17 < np.arange(1700)),
    layer("dX only", (40,), 50, 60, ("dX",)),
    layer("dW only", (40,), 50, 60, ("dW",)),
    layer("dB only", (40,), 50, 60, ("dB",)),
    layer("dW and dB", (40,), 50, 60, ("dW", "dB")),
    Case("equal cotangents do not drift", dY=ones(70_001, 2), X=ones(70_001, 1), W=ones(1, 2), outputs=("dX", "dB")),
]  # fmt: skip
