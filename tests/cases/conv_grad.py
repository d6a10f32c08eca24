"""Convolutions: every attribute, every rank, every algorithm and the edges of each."""

from __future__ import annotations

from itertools import product

from cases.case import Case
from cases.samples import normal


def output_size(size, extent, stride, pads, auto_pad):
    if auto_pad.startswith("SAME"):
        return -(-size // stride)
    room = size + (sum(pads) if auto_pad == "NOTSET" else 0) - extent
    return room // stride + 1 if room >= 0 else 0


def conv(title, n, c, m, size, kernel, **attributes) -> Case:
    """A convolution of n images with c channels to m channels; `outputs` asks for some gradients only."""
    rank, group = len(size), attributes.get("group", 1)
    strides, dilations = (
        attributes.get("strides", [1] * rank),
        attributes.get("dilations", [1] * rank),
    )
    pads, auto_pad = attributes.get("pads", [0] * 2 * rank), attributes.get("auto_pad", "NOTSET")
    out = [
        output_size(
            size[a],
            (kernel[a] - 1) * dilations[a] + 1,
            strides[a],
            (pads[a], pads[a + rank]),
            auto_pad,
        )
        for a in range(rank)
    ]
    return Case(
        title,
        dY=normal(n, m, *out),
        X=normal(n, c, *size),
        W=normal(m, c // group, *kernel),
        **attributes,
    )


def listed(values):
    return "x".join(map(str, values))


# Every combination of the attributes, on a size that leaves remainders.
ATTRIBUTES_1D = [
    conv(
        f"1-D kernel {k}, stride {s}, dilation {d}, pads {p}, group {g}", 2, 6, 4, [23], [k],
        strides=[s], dilations=[d], pads=list(p), group=g,
    )
    for k, s, d, p, g in product((1, 4), (1, 3), (1, 2), ((0, 0), (3, 1)), (1, 2))
]  # fmt: skip
ATTRIBUTES_2D = [
    conv(
        f"2-D kernel {listed(k)}, strides {listed(s)}, dilations {listed(d)}, pads {listed(p)}, group {g}",
        2, 6, 4, [11, 9], list(k), strides=list(s), dilations=list(d), pads=list(p), group=g,
    )
    for k, s, d, p, g in product(
        ((3, 3), (2, 4)), ((1, 1), (2, 3)), ((1, 1), (2, 1)), ((0, 0, 0, 0), (1, 1, 1, 1), (2, 0, 1, 3)), (1, 2)
    )
]  # fmt: skip
ATTRIBUTES_3D = [
    conv(
        f"3-D kernel {listed(k)}, strides {listed(s)}, dilations {listed(d)}, pads {listed(p)}, group {g}",
        2, 4, 6, [5, 7, 8], list(k), strides=list(s), dilations=list(d), pads=list(p), group=g,
    )
    for k, s, d, p, g in product(
        ((3, 3, 3), (1, 2, 3)), ((1, 1, 1), (2, 1, 3)), ((1, 1, 1), (1, 2, 2)), ((0,) * 6, (1, 2, 1, 0, 1, 2)), (1, 2)
    )
]  # fmt: skip

AUTO_PAD = [
    conv(
        f"auto_pad {mode}, {len(size)}-D size {listed(size)}, kernel {listed(k)}, strides {listed(s)}", 2, 3, 5,
        list(size), list(k), strides=list(s), auto_pad=mode,
    )
    for mode in ("SAME_UPPER", "SAME_LOWER", "VALID")
    for size, k, s in (
        ((10,), (4,), (2,)), ((7, 8), (3, 3), (1, 1)), ((7, 8), (2, 4), (2, 3)), ((4, 5, 6), (3, 2, 3), (2, 2, 1)),
    )
] + [
    conv("auto_pad SAME_UPPER with dilations", 1, 3, 4, [9, 10], [3, 3], dilations=[2, 3], auto_pad="SAME_UPPER"),
    conv("auto_pad SAME_LOWER where stride exceeds the kernel", 1, 3, 4, [9, 10], [1, 2], strides=[3, 4],
         auto_pad="SAME_LOWER"),
    conv("auto_pad VALID with pads of zero", 1, 3, 4, [6, 6], [3, 3], auto_pad="VALID", pads=[0, 0, 0, 0]),
]  # fmt: skip

# 3x3 with stride 1: the Winograd tiles, their borders and their padding of channels.
_FOUR = dict(winograd_tile=4, rtol=1e-5, why="F(4x4) is chosen for speed: its transforms cancel")
WINOGRAD = [
    conv(f"3x3, {c} to {m} channels, size {h}x{w}, pads {p}", n, c, m, [h, w], [3, 3], pads=[p] * 4)
    for n, c, m, h, w, p in (
        (1, 16, 16, 8, 8, 1), (2, 16, 16, 7, 7, 1), (2, 16, 32, 14, 14, 1), (1, 32, 16, 9, 13, 0), (2, 17, 33, 6, 5, 1),
        (1, 33, 17, 5, 12, 2), (3, 64, 64, 4, 4, 1), (2, 24, 40, 10, 3, 0), (1, 20, 20, 3, 3, 0), (1, 20, 20, 3, 3, 1),
        (1, 20, 20, 3, 3, 2), (1, 48, 16, 2, 9, 1), (1, 16, 48, 1, 1, 1), (5, 16, 16, 6, 6, 1), (1, 16, 16, 30, 70, 1),
        (1, 64, 64, 20, 20, 1), (2, 80, 72, 7, 9, 1), (1, 31, 130, 8, 6, 1), (9, 16, 18, 7, 7, 1),
        (1, 16, 16, 5, 260, 1),
    )
] + [
    conv("3x3, asymmetric pads", 2, 16, 16, [9, 8], [3, 3], pads=[0, 1, 2, 1]),
    conv("3x3, pads beyond the kernel", 1, 16, 16, [6, 6], [3, 3], pads=[3, 4, 5, 3]),
    conv("3x3, few tiles of many channels", 2, 100, 96, [7, 6], [3, 3], pads=[1] * 4),
    conv("3x3, many channels in several blocks", 1, 140, 72, [14, 12], [3, 3], pads=[1, 0, 1, 2]),
    conv("3x3 without Winograd", 1, 32, 32, [12, 12], [3, 3], pads=[1] * 4, winograd_tile=0),
    conv("3x3, tiles of four", 2, 16, 24, [13, 10], [3, 3], pads=[1] * 4, **_FOUR),
    conv("3x3, dX alone", 2, 32, 32, [12, 11], [3, 3], pads=[1] * 4, outputs=("dX",)),
    conv("3x3, dW alone", 2, 32, 32, [12, 11], [3, 3], pads=[1] * 4, outputs=("dW",)),
    conv("3x3, dBias alone", 2, 32, 32, [12, 11], [3, 3], pads=[1] * 4, outputs=("dBias",)),
    conv("3x3, dX and dBias", 2, 32, 32, [12, 11], [3, 3], pads=[1] * 4, outputs=("dX", "dBias")),
    conv("3x3, dW and dBias", 2, 32, 32, [12, 11], [3, 3], pads=[1] * 4, outputs=("dW", "dBias")),
]  # fmt: skip

# The same with a third dim: slabs that several outputs read, more of them than a block holds, and those outside.
WINOGRAD_3D = [
    conv(
        f"{listed(k)}, {c} to {m} channels, size {listed(size)}, pads {listed(p)}",
        n, c, m, list(size), list(k), pads=list(p),
    )
    for n, c, m, size, k, p in (
        (1, 16, 16, (4, 6, 5), (3, 3, 3), (1,) * 6), (2, 17, 33, (3, 5, 4), (3, 3, 3), (1,) * 6),
        (1, 16, 20, (19, 4, 5), (3, 3, 3), (1,) * 6), (1, 64, 48, (9, 6, 6), (3, 3, 3), (1,) * 6),
        (7, 16, 16, (2, 3, 3), (3, 3, 3), (1,) * 6), (2, 16, 24, (5, 6, 7), (1, 3, 3), (0, 1, 1) * 2),
        (1, 16, 16, (4, 5, 5), (4, 3, 3), (3, 0, 2, 1, 1, 0)), (1, 20, 20, (1, 3, 9), (3, 3, 3), (1,) * 6),
        (1, 16, 16, (3, 20, 40), (2, 3, 3), (0,) * 6),
    )
] + [
    conv("3x3x3, dX alone", 1, 16, 16, [4, 6, 5], [3] * 3, pads=[1] * 6, outputs=("dX",)),
    conv("3x3x3, dW alone", 1, 16, 16, [4, 6, 5], [3] * 3, pads=[1] * 6, outputs=("dW",)),
    conv("3x3x3, few tiles of many channels", 2, 40, 70, [3, 4, 5], [3] * 3, pads=[1] * 6),
    conv("3x3x3 without Winograd", 1, 16, 16, [4, 6, 5], [3] * 3, pads=[1] * 6, winograd_tile=0),
    conv("3x3x3, tiles of four", 1, 16, 24, [4, 7, 10], [3] * 3, pads=[1] * 6, **_FOUR),
]  # fmt: skip

# 4x4 with stride 2: dW in four phases of 2x2 taps.
PHASED_WINOGRAD = [
    conv(f"4x4, stride 2, {c} to {m} channels, size {h}x{w}, pads {p}", n, c, m, [h, w], [4, 4], strides=[2, 2], pads=[p] * 4)
    for n, c, m, h, w, p in (
        (1, 16, 16, 8, 8, 1), (2, 17, 33, 13, 9, 1), (3, 40, 16, 10, 21, 0), (1, 32, 16, 9, 70, 2), (5, 16, 18, 8, 10, 1),
    )
]  # fmt: skip

# One to eight numbers, of which each is a long sum.
FEW_NUMBERS = [
    conv("dW of one number", 3, 1, 1, [9, 40], [1, 1], strides=[1, 3], pads=[3, 0, 3, 0]),
    conv("dW of one number, many rows", 2, 1, 1, [90, 140], [1, 1], pads=[0, 1, 0, 0]),
    conv("dW of two numbers", 2, 1, 1, [57], [2], pads=[0, 1]),
    conv("dW of four numbers, two groups", 2, 2, 4, [11, 9], [1, 1], group=2, pads=[1, 0, 2, 0]),
    conv("dW of eight numbers, three dims", 2, 1, 1, [5, 6, 20], [2, 2, 2], dilations=[1, 2, 3]),
    conv(
        "dW of six numbers, a kernel beyond the image",
        1,
        1,
        1,
        [3, 2],
        [2, 3],
        pads=[2, 2, 1, 3],
        dilations=[2, 2],
    ),
    conv("dW of one number, four dims", 1, 1, 1, [3, 4, 3, 5], [1] * 4),
]

QUARTERED = [
    conv(f"5x5, {c} to {m} channels, size {h}x{w}, pads {p}", n, c, m, [h, w], [5, 5], pads=[p] * 4)
    for n, c, m, h, w, p in (
        (2, 16, 16, 14, 14, 2), (1, 17, 33, 9, 12, 0), (2, 32, 20, 7, 5, 2), (1, 16, 16, 5, 5, 0), (1, 40, 16, 6, 21, 4),
        (3, 16, 16, 3, 4, 2),
    )
] + [
    conv("5x5, asymmetric pads", 1, 16, 24, [9, 8], [5, 5], pads=[0, 3, 2, 1]),
    conv("5x5, pads beyond the kernel", 1, 16, 16, [6, 6], [5, 5], pads=[5, 6, 7, 5]),
    conv("2x2, stride 2, many channels and few pixels", 1, 90, 150, [8, 6], [2, 2], strides=[2, 2]),
    conv("1x1, many channels and few pixels", 2, 150, 140, [5, 4], [1, 1]),
    conv("5x5 without Winograd", 1, 16, 16, [9, 9], [5, 5], pads=[2] * 4, winograd_tile=0),
]  # fmt: skip

POINTWISE = [
    conv(f"1x1, {c} to {m} channels, size {listed(size)}", n, c, m, list(size), [1] * len(size))
    for n, c, m, size in (
        (2, 8, 8, (6, 7)), (1, 64, 16, (9, 9)), (2, 16, 64, (9, 9)), (3, 5, 3, (4, 4)), (1, 1, 1, (3, 5)),
        (2, 33, 65, (5, 5)), (1, 12, 40, (40, 50)), (2, 7, 9, (31,)), (1, 4, 6, (3, 4, 5)), (8, 20, 30, (1, 1)),
        (1, 100, 3, (8, 8)), (1, 3, 100, (8, 8)), (1, 300, 20, (7, 3)), (2, 64, 256, (14, 14)),
    )
] + [
    conv("1x1, stride 2", 2, 16, 24, [9, 8], [1, 1], strides=[2, 2]),
    conv("1x1, pads", 2, 16, 24, [6, 5], [1, 1], pads=[1, 0, 2, 1]),
    conv("1x1, groups", 2, 16, 24, [6, 5], [1, 1], group=4),
    conv("1x1, dX alone", 2, 16, 24, [6, 5], [1, 1], outputs=("dX",)),
    conv("1x1, dW alone", 2, 16, 24, [6, 5], [1, 1], outputs=("dW",)),
    conv("1x1, dBias alone", 2, 16, 24, [6, 5], [1, 1], outputs=("dBias",)),
]  # fmt: skip

DEPTHWISE = [
    conv(
        f"depthwise {listed(k)}, {c} channels, multiplier {x}, strides {listed(s)}, dilations {listed(d)}, "
        f"pads {listed(p)}, size {listed(size)}",
        2, c, c * x, list(size), list(k), strides=list(s), dilations=list(d), pads=list(p), group=c,
    )
    for c, x, size, k, s, d, p in (
        (8, 1, (14, 14), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)), (8, 1, (15, 33), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
        (8, 1, (14, 13), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)), (8, 1, (14, 13), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
        (8, 1, (14, 13), (5, 5), (2, 2), (1, 1), (2, 2, 2, 2)), (8, 1, (14, 13), (7, 7), (1, 1), (1, 1), (3, 3, 3, 3)),
        (8, 1, (14, 13), (3, 3), (1, 1), (2, 2), (2, 2, 2, 2)), (3, 4, (9, 9), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
        (3, 2, (9, 9), (3, 3), (2, 2), (1, 1), (0, 1, 1, 0)), (5, 1, (7, 70), (3, 3), (1, 1), (1, 1), (0, 0, 0, 0)),
        (5, 1, (7, 6), (2, 3), (1, 2), (1, 1), (1, 0, 0, 2)), (4, 1, (3, 3), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
        (70, 1, (2, 2), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)), (4, 1, (50,), (7,), (1,), (1,), (3, 3)),
        (4, 2, (51,), (4,), (2,), (2,), (3, 1)), (3, 1, (4, 6, 7), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1,) * 6),
        (3, 1, (4, 6, 7), (2, 3, 1), (2, 1, 1), (1, 2, 1), (1, 1, 0, 0, 1, 0)),
        (6, 1, (6, 100), (1, 9), (1, 1), (1, 1), (0, 4, 0, 4)),
        (4, 1, (9, 20), (3, 3), (1, 1), (1, 1), (3, 4, 0, 5)), (4, 1, (20, 40), (3, 3), (1, 1), (1, 1), (0, 0, 2, 2)),
        (20, 1, (40, 9), (7, 7), (1, 1), (1, 1), (3, 3, 3, 3)), (16, 1, (9, 30), (5, 5), (1, 1), (1, 1), (0, 1, 4, 2)),
        (33, 1, (6, 5), (7, 7), (1, 1), (1, 1), (6, 6, 6, 6)), (16, 1, (12, 13), (6, 3), (1, 1), (1, 1), (7, 1, 0, 4)),
        (16, 1, (20, 21), (5, 5), (1, 1), (2, 3), (4, 6, 4, 6)), (12, 1, (11, 17), (4, 4), (1, 1), (1, 1), (0, 0, 0, 0)),
        (16, 1, (60,), (17,), (1,), (1,), (8, 8)), (8, 1, (130, 90), (7, 5), (1, 1), (1, 1), (3, 2, 3, 2)),
        (4, 1, (6, 9), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)), (2, 1, (11, 11), (11, 11), (1, 1), (1, 1), (5, 5, 5, 5)),
    )
] + [
    conv("depthwise, dX alone", 2, 8, 8, [9, 9], [3, 3], pads=[1] * 4, group=8, outputs=("dX",)),
    conv("depthwise, dW alone", 2, 8, 8, [9, 9], [3, 3], pads=[1] * 4, group=8, outputs=("dW",)),
    conv("depthwise 7x7, dX alone", 2, 16, 16, [9, 9], [7, 7], pads=[3] * 4, group=16, outputs=("dX",)),
    conv("depthwise 7x7, dW alone", 2, 16, 16, [9, 9], [7, 7], pads=[3] * 4, group=16, outputs=("dW",)),
    conv("depthwise 7x7, dW and dBias", 2, 16, 16, [9, 9], [7, 7], pads=[3] * 4, group=16, outputs=("dW", "dBias")),
    conv("depthwise, dBias alone", 2, 8, 8, [9, 9], [3, 3], pads=[1] * 4, group=8, outputs=("dBias",)),
    conv("depthwise, dW and dBias", 2, 8, 8, [9, 9], [3, 3], pads=[1] * 4, group=8, outputs=("dW", "dBias")),
]  # fmt: skip

DEPTHWISE += [
    conv("depthwise, stride beyond the image", 1, 4, 4, [9, 7], [3, 3], strides=[1 << 24] * 2, group=4),
    conv("depthwise, a stride as long as a row", 2, 4, 4, [9, 7], [3, 3], strides=[2, 7], group=4, pads=[1] * 4),
]  # fmt: skip

FEW_CHANNELS = [
    conv(
        f"first layer, {c} channels, kernel {listed(k)}, strides {listed(s)}, size {listed(size)}", 2, c, m,
        list(size), list(k), strides=list(s), pads=[p] * 2 * len(size),
    )
    for c, m, size, k, s, p in (
        (3, 16, (32, 30), (7, 7), (2, 2), 3), (1, 8, (28, 28), (5, 5), (1, 1), 2), (3, 20, (33, 40), (3, 3), (2, 2), 1),
        (4, 12, (17, 71), (4, 4), (4, 4), 0), (2, 7, (9, 9), (3, 3), (1, 1), 1), (1, 6, (200,), (10,), (5,), 0),
        (1, 4, (6, 9, 10), (3, 3, 3), (2, 2, 2), 1), (3, 33, (16, 16), (3, 3), (1, 1), 1),
        (3, 5, (20, 20), (5, 5), (3, 2), 4),
    )
]  # fmt: skip

EDGES = [
    conv("an empty batch", 0, 3, 4, [5, 6], [3, 3], pads=[1] * 4),
    conv("an empty batch, depthwise", 0, 4, 4, [5, 6], [3, 3], group=4),
    conv("an empty batch, pointwise", 0, 3, 4, [5, 6], [1, 1]),
    conv("an empty batch, 16 channels", 0, 16, 16, [5, 6], [3, 3], pads=[1] * 4),
    conv("an empty image", 2, 3, 4, [0, 6], [1, 1]),
    conv("an image of padding only", 2, 3, 4, [0, 6], [3, 3], pads=[2] * 4),
    conv("16 channels of padding only", 2, 16, 16, [0, 6], [3, 3], pads=[2] * 4),
    conv("a depthwise image of padding only", 2, 4, 4, [0, 6], [3, 3], pads=[2] * 4, group=4),
    conv("a kernel larger than the image", 2, 3, 4, [2, 6], [3, 3]),
    conv("no channels", 2, 0, 4, [5, 5], [3, 3]),
    conv("no filters", 2, 3, 0, [5, 5], [3, 3]),
    conv("one pixel", 1, 1, 1, [1], [1]),
    conv("one output", 2, 5, 6, [3, 3], [3, 3]),
    conv("pixels that no output reads", 2, 3, 4, [8, 9], [2, 2], strides=[3, 4]),
    conv("stride beyond the kernel", 1, 5, 3, [17, 5], [1, 1], strides=[5, 3]),
    conv("stride beyond the image", 1, 5, 3, [7, 7], [3, 3], strides=[100, 9]),
    conv("dilation beyond the image, padded", 1, 3, 4, [5, 5], [3, 3], dilations=[6, 6], pads=[6] * 4),
    conv("kernel_shape given", 1, 3, 4, [6, 6], [3, 2], kernel_shape=[3, 2]),
    conv("a large kernel", 1, 2, 3, [20, 21], [13, 15], pads=[6, 7, 6, 7]),
    conv("four spatial dims", 2, 3, 4, [3, 4, 2, 3], [2, 2, 1, 3], strides=[1, 2, 1, 1], pads=[1, 0, 0, 1, 0, 1, 0, 1]),
    conv("five spatial dims", 1, 2, 2, [2, 3, 2, 2, 3], [2, 2, 1, 2, 2], group=2),
    conv("groups of one filter each, many channels", 2, 24, 3, [6, 6], [3, 3], group=3),
    conv("many groups", 1, 40, 60, [6, 5], [3, 3], group=20, pads=[1] * 4),
    conv("wide groups", 1, 68, 36, [5, 5], [3, 3], group=2, pads=[1] * 4),
    conv("a long signal", 1, 5, 7, [3000], [9], pads=[4, 4]),
    conv("a long signal, dilated", 1, 12, 10, [1500], [3], dilations=[16], pads=[16, 16]),
    conv("more channels than fit a block", 1, 300, 10, [5, 5], [3, 3], strides=[2, 2], pads=[1] * 4),
    conv("more filters than fit a block", 1, 10, 600, [5, 5], [2, 2]),
    conv("many small images", 40, 10, 12, [3, 3], [2, 2]),
    conv("a volume, 16 channels", 1, 16, 16, [6, 8, 10], [3, 3, 3], pads=[1] * 6),
    conv("a height of one", 2, 6, 5, [1, 40], [1, 5], pads=[0, 2, 0, 2]),
    conv("a width of one", 2, 6, 5, [40, 1], [5, 1], pads=[2, 0, 2, 0]),
]  # fmt: skip

CASES = [
    *ATTRIBUTES_1D,
    *ATTRIBUTES_2D,
    *ATTRIBUTES_3D,
    *AUTO_PAD,
    *WINOGRAD,
    *QUARTERED,
    *WINOGRAD_3D,
    *PHASED_WINOGRAD,
    *FEW_NUMBERS,
    *POINTWISE,
    *DEPTHWISE,
    *FEW_CHANNELS,
    *EDGES,
]

# The old kernel's results are kept for these: one of each kind is enough.
GOLDEN = {
    "1-D kernel 4, stride 3, dilation 2, pads (3, 1), group 2",
    "2-D kernel 3x3, strides 1x1, dilations 1x1, pads 1x1x1x1, group 1",
    "2-D kernel 2x4, strides 2x3, dilations 2x1, pads 2x0x1x3, group 2",
    "3-D kernel 1x2x3, strides 2x1x3, dilations 1x2x2, pads 1x2x1x0x1x2, group 2",
    "auto_pad SAME_UPPER, 2-D size 7x8, kernel 3x3, strides 1x1",
    "auto_pad VALID, 2-D size 7x8, kernel 3x3, strides 1x1",
    "1x1, 5 to 3 channels, size 4x4",
    "1x1, stride 2",
    "depthwise, dX alone",
    "depthwise, dW and dBias",
    "pixels that no output reads",
    "kernel_shape given",
    "groups of one filter each, many channels",
    "an empty batch",
}
