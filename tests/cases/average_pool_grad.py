import numpy as np

from cases.case import Case
from cases.pool_family import window_counts
from cases.samples import exactly, normal


def _case(
    title, shape, kernel, strides=None, pads=None, *, dilations=None, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0,
):  # fmt: skip
    outs = window_counts(shape, kernel, strides, pads, dilations, auto_pad, ceil_mode)
    given = dict(strides=strides, pads=pads, dilations=dilations, ceil_mode=ceil_mode or None,
                 auto_pad=None if auto_pad == "NOTSET" else auto_pad, count_include_pad=count_include_pad or None)  # fmt: skip
    return Case(title, dY=normal(*shape[:2], *outs), shape=exactly(np.array(shape, np.int64)), kernel_shape=kernel,
                **{k: v for k, v in given.items() if v is not None})  # fmt: skip


def _both(title, *arguments, **more):
    return [
        _case(title, *arguments, **more),
        _case(title + ", padding counts", *arguments, count_include_pad=1, **more),
    ]


CASES = [
    *_both("2x2, stride 2", (2, 3, 6, 8), [2, 2], [2, 2]),
    *_both("3x3, stride 1, padded", (1, 4, 9, 9), [3, 3], None, [1, 1, 1, 1]),
    *_both("3x3, stride 2, padded", (1, 4, 9, 9), [3, 3], [2, 2], [1, 1, 1, 1]),
    *_both("uneven padding", (2, 2, 7, 6), [3, 2], [2, 1], [0, 1, 2, 0]),
    *_both("ceil_mode", (1, 2, 7, 8), [2, 3], [2, 2], ceil_mode=1),
    *_both("ceil_mode, padded", (1, 2, 8, 7), [3, 3], [2, 2], [1, 1, 1, 1], ceil_mode=1),
    *_both("dilated", (1, 2, 9, 10), [2, 3], None, None, dilations=[2, 2]),
    *_both(
        "dilated, padded and strided", (1, 2, 9, 10), [3, 3], [2, 1], [2, 1, 2, 1], dilations=[2, 2]
    ),
    *_both("SAME_UPPER", (1, 2, 7, 8), [3, 2], [2, 2], auto_pad="SAME_UPPER"),
    *_both("SAME_LOWER", (1, 2, 7, 8), [2, 4], [1, 3], auto_pad="SAME_LOWER"),
    *_both("VALID", (1, 2, 7, 8), [3, 3], [2, 2], auto_pad="VALID"),
    *_both("one dim", (2, 3, 11), [3], [2], [1, 1]),
    *_both("three dims", (1, 2, 5, 6, 4), [2, 3, 2], [2, 1, 2], [0, 1, 1, 0, 1, 1]),
    *_both("four dims", (1, 1, 4, 3, 4, 5), [2, 2, 3, 2], None, [0, 0, 1, 0, 0, 1, 1, 0]),
    _case("the whole image", (3, 4, 5, 6), [5, 6]),
    _case("the end of a ResNet", (2, 40, 7, 7), [7, 7]),
    _case("one pixel: a copy", (3, 4, 5, 6), [1, 1]),
    _case("one pixel of every second", (3, 4, 6, 6), [1, 1], [2, 2]),
    _case("rows only", (2, 3, 9, 5), [3, 1], [2, 1]),
    _case("columns only", (2, 3, 5, 9), [1, 3], [1, 2]),
    _case("an empty batch", (0, 3, 4, 4), [2, 2], [2, 2]),
    _case("no channels", (2, 0, 4, 4), [2, 2], [2, 2]),
    _case("a stride longer than the window", (1, 2, 11, 11), [2, 2], [3, 3]),
    _case("a wide image", (1, 2, 3, 400), [3, 5], [1, 4], [1, 2, 1, 2]),
    _case("a high image", (1, 2, 400, 3), [5, 3], [4, 1], [2, 1, 2, 1]),
    _case("many planes", (9, 31, 6, 6), [2, 2], [2, 2]),
    _case("a large window", (1, 3, 40, 44), [20, 21], [3, 4]),
]
