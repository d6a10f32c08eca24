import numpy as np

from cases.case import Case
from cases.samples import exactly, normal

INF, NAN = float("inf"), float("nan")


def _case(title, shape, kernel, strides=None, pads=None, dilations=None, *, levels=None, **more):
    """`levels`: X takes only that many values, so that windows have ties."""
    x = normal(*shape) if levels is None else _levels(levels, shape)
    given = dict(strides=strides, pads=pads, dilations=dilations)
    return Case(title, X=x, kernel_shape=kernel, **{k: v for k, v in given.items() if v}, **more)


def _levels(count, shape):
    return lambda rng: rng.integers(0, count, shape).astype(float)


def _signal(title, *numbers, **more):
    return Case(title, X=exactly(np.array([[numbers]])), **more)


CASES = [
    _case("2x2, stride 2", (2, 3, 6, 8), [2, 2], [2, 2]),
    _case("2x2, stride 2, an odd size", (2, 3, 7, 9), [2, 2], [2, 2]),
    _case("2x2, stride 2, wide", (1, 2, 6, 150), [2, 2], [2, 2]),
    _case("3x3, stride 2, padded", (1, 4, 9, 9), [3, 3], [2, 2], [1, 1, 1, 1]),
    _case("3x3, stride 2, padded, wide", (1, 2, 9, 101), [3, 3], [2, 2], [1, 1, 1, 1]),
    _case("3x3, stride 1: windows overlap", (2, 2, 7, 6), [3, 3]),
    _case("3x3, stride 1, padded", (1, 2, 5, 5), [3, 3], None, [1, 1, 1, 1]),
    _case("3x3, stride 3", (1, 2, 10, 11), [3, 3], [3, 3]),
    _case("5x4, stride 3x4, wide", (1, 2, 10, 170), [5, 4], [3, 4], [1, 2, 2, 1]),
    _case("and Relu", (2, 3, 6, 8), [2, 2], [2, 2], activation="relu"),
    _case("and Relu, wide, an odd size", (1, 2, 7, 151), [2, 3], [2, 3], activation="relu"),
    _case("and Relu, a volume", (1, 3, 4, 6, 8), [2, 2, 2], [2, 2, 2], activation="relu"),
    _signal(
        "and Relu, NaN stays", -1, NAN, -2, -3, kernel_shape=[2], strides=[2], activation="relu"
    ),
    _case("ties", (2, 3, 8, 8), [2, 2], [2, 2], levels=2),
    _case("ties in windows that overlap", (2, 3, 8, 8), [3, 3], levels=3),
    _case("all equal", (1, 2, 6, 6), [3, 3], [2, 2], levels=1),
    _case("ceil_mode", (1, 2, 7, 8), [2, 2], [2, 2], ceil_mode=1),
    _case("ceil_mode, padded", (1, 2, 8, 7), [3, 3], [2, 2], [1, 1, 1, 1], ceil_mode=1),
    _case(
        "ceil_mode, a window that begins after the data",
        (1, 2, 4, 4),
        [1, 1],
        [3, 3],
        [0, 0, 2, 2],
        ceil_mode=1,
    ),
    _case("dilated", (1, 2, 9, 10), [2, 3], None, None, [2, 2]),
    _case("dilated, strided and padded", (1, 2, 9, 10), [3, 3], [2, 1], [2, 1, 2, 1], [2, 2]),
    _case("dilated beyond the stride", (1, 2, 9, 60), [2, 3], [2, 2], [1, 1, 1, 1], [3, 3]),
    *(
        _case(f"auto_pad {mode}, stride {s}", (1, 2, 7, 8), [3, 2], [s, s], auto_pad=mode)
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID")
        for s in (1, 2)
    ),
    _case("one dim", (2, 3, 11), [3], [2]),
    _case("one dim, long", (1, 3, 1001), [4], [4]),
    _case("three dims", (1, 2, 5, 6, 4), [2, 2, 2], [2, 2, 2]),
    _case("three dims that overlap", (2, 1, 5, 4, 6), [3, 2, 3], [1, 2, 1], [1, 0, 1, 1, 0, 1]),
    _case("the whole image", (3, 4, 5, 6), [5, 6]),
    _case("one pixel", (3, 4, 5, 6), [1, 1]),
    _case("one pixel of every second", (3, 4, 6, 6), [1, 1], [2, 2]),
    _case("uneven padding", (1, 3, 6, 6), [3, 3], [2, 2], [0, 1, 1, 0]),
    _case("an empty batch", (0, 3, 4, 4), [2, 2], [2, 2]),
    _case("no channels", (2, 0, 4, 4), [2, 2], [2, 2]),
    _case("a window larger than the image", (1, 2, 3, 3), [4, 4]),
    _case("many channels of small images", (2, 60, 4, 4), [2, 2], [2, 2]),
    _case("many small images", (50, 3, 3, 3), [2, 2]),
    _case("a stride longer than the window", (1, 2, 11, 11), [2, 2], [3, 3]),
    _case("rows only", (1, 2, 8, 5), [2, 1], [2, 1]),
    _case("the values alone", (1, 2, 8, 6), [2, 2], [2, 2], outputs=("Y",)),
    _case("the stem of a ResNet, small", (1, 3, 28, 28), [3, 3], [2, 2], [1, 1, 1, 1]),
    _signal("negative numbers beside padding", -3, -1, -2, -4, kernel_shape=[3], pads=[1, 1]),
    _signal("windows of minus infinity", -INF, -INF, -INF, kernel_shape=[2], pads=[1, 1]),
    _signal("plus infinity", 1, INF, 2, INF, kernel_shape=[2]),
    _signal("a NaN wins", 1, NAN, 2, 3, 4, kernel_shape=[2]),
    _signal("several NaN", NAN, NAN, 2, 3, NAN, kernel_shape=[3], strides=[2]),
]
