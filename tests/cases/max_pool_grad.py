import itertools

import numpy as np

from cases.case import Case
from cases.pool_family import window_counts
from cases.samples import exactly, normal


def _pool(x, kernel, strides, pads, dilations, ceil, storage_order=0):
    """Where the maxima of each window stand in x, as MaxPool tells them; the first of equal ones."""
    spatial = x.shape[2:]
    outs = window_counts(x.shape, kernel, strides, pads, dilations, ceil_mode=ceil)
    ones = [1] * len(spatial)
    strides, pads, dilations = strides or ones, pads or [0] * 2 * len(spatial), dilations or ones
    flat = np.arange(x.size).reshape(x.shape)
    if storage_order:  # column major within the last two dims
        flat = flat.reshape(*x.shape[:2], x.shape[3], x.shape[2]).swapaxes(2, 3)
    result = np.zeros((*x.shape[:2], *outs), np.int64)
    for n, c, *o in np.ndindex(result.shape):
        places = []
        for a, size in enumerate(spatial):
            first = o[a] * strides[a] - pads[a]
            covered = (first + k * dilations[a] for k in range(kernel[a]))
            places.append([i for i in covered if 0 <= i < size])
        best = max(itertools.product(*places), key=lambda p: x[(n, c, *p)])
        result[(n, c, *o)] = flat[(n, c, *best)]
    return result


def _case(
    title, shape, kernel, strides=None, pads=None, dilations=None, *, ceil=False, levels=None, dtype=np.int64, storage_order=0,
    relu=False,
):  # fmt: skip
    """`levels`: X takes only that many values, so that windows have ties."""
    rng = np.random.default_rng(len(title))
    x = rng.normal(size=shape) if levels is None else rng.integers(0, levels, shape).astype(float)
    indices = _pool(x, kernel, strides, pads, dilations, ceil, storage_order)
    return Case(
        title,
        dY=normal(*indices.shape),
        Indices=exactly(indices.astype(dtype)),
        shape=exactly(np.array(shape, np.int64)),
        **({"Y": normal(*indices.shape)} if relu else {}),
    )


def _both(title, *arguments, **more):
    return [
        _case(title, *arguments, **more),
        _case(title + ", int32", *arguments, dtype=np.int32, **more),
    ]


CASES = [
    _case("behind a Relu", (2, 3, 6, 8), [2, 2], [2, 2], relu=True),
    _case("behind a Relu, windows overlap", (2, 2, 7, 6), [3, 3], relu=True),
    _case(
        "behind a Relu, a volume, int32",
        (1, 3, 4, 6, 8),
        [2, 2, 2],
        [2, 2, 2],
        dtype=np.int32,
        relu=True,
    ),
    *_both("2x2, stride 2", (2, 3, 6, 8), [2, 2], [2, 2]),
    *_both("3x3, stride 2, padded", (1, 4, 9, 9), [3, 3], [2, 2], [1, 1, 1, 1]),
    *_both("3x3, stride 1: windows overlap", (2, 2, 7, 6), [3, 3]),
    *_both("3x3, stride 1, padded", (1, 2, 5, 5), [3, 3], None, [1, 1, 1, 1]),
    *_both("ties", (2, 3, 8, 8), [2, 2], [2, 2], levels=2),
    *_both("ties in windows that overlap", (2, 3, 8, 8), [3, 3], levels=3),
    *_both("all equal", (1, 2, 6, 6), [3, 3], [2, 2], levels=1),
    *_both("ceil_mode", (1, 2, 7, 8), [2, 2], [2, 2], ceil=True),
    *_both("ceil_mode, padded", (1, 2, 8, 7), [3, 3], [2, 2], [1, 1, 1, 1], ceil=True),
    *_both("dilated", (1, 2, 9, 10), [2, 3], None, None, [2, 2]),
    *_both("dilated, strided and padded", (1, 2, 9, 10), [3, 3], [2, 1], [2, 1, 2, 1], [2, 2]),
    *_both("one dim", (2, 3, 11), [3], [2]),
    *_both("three dims", (1, 2, 5, 6, 4), [2, 2, 2], [2, 2, 2]),
    _case("three dims that overlap", (2, 1, 5, 4, 6), [3, 2, 3], [1, 2, 1], [1, 0, 1, 1, 0, 1]),
    _case("the whole image", (3, 4, 5, 6), [5, 6]),
    _case("one pixel", (3, 4, 5, 6), [1, 1]),
    _case("one pixel of every second", (3, 4, 6, 6), [1, 1], [2, 2]),
    _case("uneven padding", (1, 3, 6, 6), [3, 3], [2, 2], [0, 1, 1, 0]),
    _case("column-major indices", (2, 2, 4, 6), [2, 2], [2, 2], storage_order=1),
    _case("an empty batch", (0, 3, 4, 4), [2, 2], [2, 2]),
    _case("no channels", (2, 0, 4, 4), [2, 2], [2, 2]),
    _case("many channels of small images", (2, 60, 4, 4), [2, 2], [2, 2]),
    _case("many small images", (50, 3, 3, 3), [2, 2]),
    _case("a wide row", (1, 1, 1, 300), [1, 3], [1, 2]),
    _case("one channel of an image", (1, 1, 30, 31), [3, 3], [2, 2], [1, 1, 1, 1]),
    _case("a stride longer than the window", (1, 2, 11, 11), [2, 2], [3, 3]),
    _case("rows only", (1, 2, 8, 5), [2, 1], [2, 1]),
    _case("the stem of a ResNet, small", (1, 3, 28, 28), [3, 3], [2, 2], [1, 1, 1, 1]),
]
