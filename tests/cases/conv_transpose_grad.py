from cases.case import Case
from cases.samples import normal


def _case(title, n, c, m, size, kernel, *, outputs=None, **attributes):
    """X is [n, c, size], W is [c, m / group, kernel]; dY has the size that the attributes give."""
    rank, group = len(size), attributes.get("group", 1)
    stride, dilation = (
        attributes.get("strides", [1] * rank),
        attributes.get("dilations", [1] * rank),
    )
    pads, extra = (
        attributes.get("pads", [0] * 2 * rank),
        attributes.get("output_padding", [0] * rank),
    )
    out = []
    for a in range(rank):
        full = (size[a] - 1) * stride[a] + (kernel[a] - 1) * dilation[a] + 1 + extra[a]
        same = attributes.get("auto_pad", "").startswith("SAME")
        out.append(size[a] * stride[a] if same else full - pads[a] - pads[a + rank])
    out = attributes.get("output_shape", out)
    return Case(
        title,
        dY=normal(n, m, *out),
        X=normal(n, c, *size),
        W=normal(c, m // group, *kernel),
        outputs=outputs,
        **attributes,
    )


S2 = dict(strides=[2, 2])
CASES = [
    _case("1x1", 2, 3, 4, (5, 6), (1, 1)),
    _case("2x2, stride 2", 2, 3, 4, (5, 6), (2, 2), **S2),
    _case("2x2, stride 2, more channels", 2, 24, 20, (7, 9), (2, 2), **S2),
    _case("4x4, stride 2, padded", 2, 3, 4, (5, 6), (4, 4), pads=[1, 1, 1, 1], **S2),
    _case("4x4, stride 2, more channels", 1, 33, 17, (8, 7), (4, 4), pads=[1, 1, 1, 1], **S2),
    _case("4x4, stride 2, many channels, odd sizes", 3, 16, 40, (9, 11), (4, 4), **S2),
    _case(
        "4x4, stride 2, many channels, output padding",
        2,
        20,
        16,
        (4, 37),
        (4, 4),
        pads=[2, 1, 1, 2],
        output_padding=[1, 0],
        **S2,
    ),
    _case(
        "4x4, stride 2, many channels, only dX", 1, 16, 16, (6, 6), (4, 4), outputs=("dX",), **S2
    ),
    _case("2x2, stride 2, many channels", 3, 40, 17, (13, 30), (2, 2), **S2),
    _case(
        "2x2, stride 2, many channels, only dX", 1, 40, 17, (13, 30), (2, 2), outputs=("dX",), **S2
    ),
    _case(
        "2x2, stride 2, many channels, only dW", 1, 40, 17, (13, 30), (2, 2), outputs=("dW",), **S2
    ),
    _case(
        "2x2, stride 2, many channels, only dBias",
        1,
        40,
        17,
        (13, 30),
        (2, 2),
        outputs=("dBias",),
        **S2,
    ),
    _case(
        "3x2, many channels, padded and dilated",
        2,
        18,
        33,
        (9, 300),
        (3, 2),
        strides=[2, 1],
        pads=[1, 2, 0, 1],
        dilations=[1, 3],
    ),
    _case(
        "three dims, many channels",
        2,
        16,
        16,
        (3, 5, 4),
        (2, 3, 2),
        strides=[2, 1, 2],
        pads=[1, 0, 0, 0, 1, 1],
    ),
    _case("one dim, many channels", 9, 16, 20, (40,), (5,), strides=[3], output_padding=[2]),
    _case("2x2, more channels than one block's copy", 1, 16, 200, (9, 8), (2, 2), **S2),
    _case("3x3", 1, 3, 4, (5, 6), (3, 3)),
    _case("3x3, padded", 2, 3, 4, (5, 6), (3, 3), pads=[1, 1, 1, 1]),
    _case("3x3, padded, many channels", 1, 20, 32, (9, 8), (3, 3), pads=[1, 1, 1, 1]),
    _case(
        "3x3, stride 2, output padding",
        1,
        3,
        4,
        (5, 6),
        (3, 3),
        pads=[1, 1, 1, 1],
        output_padding=[1, 1],
        **S2,
    ),
    _case("3x3, stride 3", 1, 3, 4, (4, 5), (3, 3), strides=[3, 3]),
    _case("a stride longer than the kernel", 1, 3, 4, (4, 5), (2, 2), strides=[3, 4]),
    _case(
        "a stride longer than the kernel, output padding",
        1,
        3,
        4,
        (4, 5),
        (2, 2),
        strides=[3, 4],
        output_padding=[2, 1],
    ),
    _case("uneven strides", 1, 3, 4, (4, 5), (3, 2), strides=[1, 3]),
    _case("uneven pads", 1, 3, 4, (5, 5), (4, 3), pads=[0, 1, 2, 0], **S2),
    _case("dilated", 1, 3, 4, (5, 6), (3, 2), dilations=[2, 3]),
    _case(
        "dilated, strided and padded",
        1,
        3,
        4,
        (5, 6),
        (3, 3),
        dilations=[2, 2],
        pads=[2, 1, 2, 1],
        **S2,
    ),
    _case("two groups", 2, 4, 6, (5, 6), (3, 3), group=2),
    _case("two groups, stride 2", 2, 8, 6, (5, 6), (4, 4), group=2, pads=[1, 1, 1, 1], **S2),
    _case("depthwise", 2, 6, 6, (5, 6), (3, 3), group=6, pads=[1, 1, 1, 1]),
    _case("depthwise, stride 2", 2, 6, 6, (5, 6), (4, 4), group=6, pads=[1, 1, 1, 1], **S2),
    _case("SAME_UPPER", 1, 3, 4, (5, 6), (3, 3), auto_pad="SAME_UPPER", **S2),
    _case("SAME_LOWER", 1, 3, 4, (5, 6), (4, 3), auto_pad="SAME_LOWER", **S2),
    _case("VALID", 1, 3, 4, (5, 6), (3, 3), auto_pad="VALID", **S2),
    _case("SAME_UPPER, stride 1", 1, 3, 4, (5, 6), (3, 4), auto_pad="SAME_UPPER"),
    _case("an output shape", 1, 3, 4, (5, 6), (3, 3), output_shape=[10, 12], **S2),
    _case(
        "an output shape, UPPER",
        1,
        3,
        4,
        (5, 6),
        (4, 4),
        output_shape=[11, 13],
        auto_pad="SAME_UPPER",
        **S2,
    ),
    _case("one dim", 2, 3, 4, (9,), (4,), strides=[2], pads=[1, 1]),
    _case("one dim, dilated", 2, 3, 4, (9,), (3,), dilations=[3]),
    _case("three dims", 1, 2, 3, (3, 4, 3), (2, 3, 2), strides=[2, 1, 2]),
    _case("three dims, padded", 1, 2, 3, (3, 4, 3), (3, 3, 3), pads=[1, 1, 1, 1, 1, 1]),
    _case("four dims", 1, 2, 3, (2, 3, 2, 3), (2, 2, 1, 2), strides=[1, 2, 1, 1]),
    _case("one pixel", 2, 5, 4, (1, 1), (4, 4)),
    _case("one channel to one", 2, 1, 1, (6, 7), (3, 3), **S2),
    _case("one channel to many", 2, 1, 40, (6, 7), (2, 2), **S2),
    _case("many channels to one", 2, 40, 1, (6, 7), (2, 2), **S2),
    _case("more pixels than one block", 1, 9, 5, (23, 29), (2, 2), **S2),
    _case("more depth than one block", 1, 7, 40, (4, 5), (3, 3)),
    _case("an empty batch", 0, 3, 4, (5, 6), (2, 2), **S2),
    _case("only dX", 1, 3, 4, (5, 6), (2, 2), outputs=("dX",), **S2),
    _case("only dW", 1, 3, 4, (5, 6), (2, 2), outputs=("dW",), **S2),
    _case("only dBias", 1, 3, 4, (5, 6), (2, 2), outputs=("dBias",), **S2),
    _case("dX and dBias", 1, 3, 4, (5, 6), (3, 3), outputs=("dX", "dBias")),
    _case("kernel_shape given", 1, 3, 4, (5, 6), (2, 3), kernel_shape=[2, 3]),
    _case(
        "2x2, stride 2, many channels and few pixels", 2, 200, 90, [5, 6], [2, 2], strides=[2, 2]
    ),
    _case("2x2, stride 2, several blocks", 1, 64, 32, [20, 30], [2, 2], strides=[2, 2]),
]
