"""The geometry of sliding windows, shared by convolutions and pooling.

Everything is written on int64 vectors of length 1; the builder folds them, so that sizes which
are known when the graph is built leave no node behind.
"""

from dataclasses import dataclass
from typing import Any

from onnxgrad.graph import ShapeUnknown


@dataclass
class Window:
    """Windows over the spatial axes: attributes with their defaults, and padding resolved."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    begin: list[Any]  # padding before each axis, an int64 vector of length 1
    end: list[Any]
    explicit: list[int] | None  # begin then end as numbers, when they are known

    @property
    def axes(self) -> list[int]:
        """The spatial axes of a tensor [N, C, spatial...]."""
        return list(range(2, 2 + len(self.kernel)))


def window(op, X, Y, attrs, kernel) -> Window:
    """Read kernel, strides, dilations and padding, auto_pad included, from a node's attributes.

    `X` is the side that the windows slide over and `Y` has one entry per window.
    """
    n = len(kernel)
    strides = list(attrs.get("strides") or [1] * n)
    dilations = list(attrs.get("dilations") or [1] * n)
    auto = attrs.get("auto_pad", "NOTSET")
    if auto == "VALID":
        pads = [0] * (2 * n)
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        begin, end = [], []
        for i in range(n):
            # total = (out - 1)·stride + (kernel - 1)·dilation + 1 - in, at least 0
            reach = op.Mul(op.Sub(op.dim(Y, i + 2), [1]), [strides[i]])
            total = op.Sub(op.Add(reach, [(kernel[i] - 1) * dilations[i] + 1]), op.dim(X, i + 2))
            total = op.Max(total, [0])
            half = op.Div(total, [2])
            rest = op.Sub(total, half)
            begin.append(half if auto == "SAME_UPPER" else rest)
            end.append(rest if auto == "SAME_UPPER" else half)
        known = [op.ints(v) for v in (*begin, *end)]
        explicit = None if None in known else [v[0] for v in known]
        return Window(list(kernel), strides, dilations, begin, end, explicit)
    else:
        pads = list(attrs.get("pads") or [0] * (2 * n))
    vectors = [op.constant([p]) for p in pads]
    return Window(list(kernel), strides, dilations, vectors[:n], vectors[n:], pads)


def kernel_shape(op, W, attrs) -> list[int]:
    """Return the kernel's spatial shape: the attribute, or the shape of the weights."""
    if attrs.get("kernel_shape"):
        return list(attrs["kernel_shape"])
    shape = op.dims(W)
    if shape is None or not all(isinstance(d, int) for d in shape[2:]):
        raise ShapeUnknown(f"the kernel shape of {W.name!r} is unknown")
    return list(shape[2:])


def transposed_windows(op, dY, W, like, w: Window, group: int):
    """The adjoint of sliding: add every window of dY·W into zeros of the shape of `like`."""
    o = [op.ints(op.dim(dY, a)) for a in w.axes]
    size = [op.ints(op.dim(like, a)) for a in w.axes]
    common = {"strides": w.strides, "dilations": w.dilations, "group": group}
    if w.explicit is not None and None not in o and None not in size:
        n = len(w.kernel)
        begin, end = w.explicit[:n], list(w.explicit[n:])
        extra = []
        for i in range(n):
            full = (o[i][0] - 1) * w.strides[i] + (w.kernel[i] - 1) * w.dilations[i] + 1
            missing = size[i][0] - (full - begin[i] - end[i])
            extra.append(max(missing, 0))
            end[i] += max(-missing, 0)
        # ConvTranspose takes less extra than a stride; more is possible when a kernel of 1 skips.
        if all(e < max(s, d) for e, s, d in zip(extra, w.strides, w.dilations, strict=True)):
            return op.ConvTranspose(
                dY, W, pads=[*begin, *end], output_padding=extra if any(extra) else None, **common
            )
    full = op.ConvTranspose(dY, W, **common)
    begins, ends = [], []
    for i, axis in enumerate(w.axes):
        # zeros after (negative: crop) = size + begin - full
        reach = op.Mul(op.Sub(op.dim(dY, axis), [1]), [w.strides[i]])
        length = op.Add(reach, [(w.kernel[i] - 1) * w.dilations[i] + 1])
        begins.append(op.Neg(w.begin[i]))
        ends.append(op.Sub(op.Add(op.dim(like, axis), w.begin[i]), length))
    pads = op.Concat(*begins, *ends, axis=0)
    return op.Pad(full, pads, None, w.axes)
