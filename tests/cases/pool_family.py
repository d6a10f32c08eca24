"""What the cases of pools share."""


def window_counts(
    shape, kernel, strides=None, pads=None, dilations=None, auto_pad="NOTSET", ceil_mode=0
):
    """How many windows there are along each spatial dim."""
    rank, counts = len(kernel), []
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    pads = pads if pads and auto_pad != "VALID" else [0] * 2 * rank
    for a, size in enumerate(shape[2:]):
        extent, stride = (kernel[a] - 1) * dilations[a] + 1, strides[a]
        if auto_pad.startswith("SAME"):
            counts.append(-(-size // stride))
            continue
        room = size + pads[a] + pads[a + rank] - extent
        count = (-(-room // stride) if ceil_mode else room // stride) + 1
        begins_after = ceil_mode and (count - 1) * stride >= size + pads[a]
        counts.append(count - 1 if begins_after else count)
    return counts
