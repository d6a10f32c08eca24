"""The geometry of sliding windows, shared by convolutions and pooling.

Everything is written on int64 vectors of length 1; the builder folds them, so that sizes which
are known when the graph is built leave no node behind.
"""

from dataclasses import dataclass
from typing import Any


@dataclass
class Window:
    """Windows over the spatial axes: attributes with their defaults, and padding resolved."""

    kernel: list[Any]  # an int64 vector of length 1 for each axis, and so are begin and end
    strides: list[int]
    dilations: list[int]
    begin: list[Any]
    end: list[Any]
    explicit: list[int] | None  # begin then end as numbers, when they are known

    @property
    def axes(self) -> list[int]:
        """The spatial axes of a tensor [N, C, spatial...]."""
        return list(range(2, 2 + len(self.kernel)))

    def reach(self, op, count: Any, i: int) -> Any:
        """How far windows reach on axis i: (count - 1)·stride + (kernel - 1)·dilation + 1."""
        steps = op.Mul(op.Sub(count, [1]), [self.strides[i]])
        return op.Add(op.Add(steps, op.Mul(op.Sub(self.kernel[i], [1]), [self.dilations[i]])), [1])


def window(op, X, Y, attrs, kernel) -> Window:
    """Read kernel, strides, dilations and padding, auto_pad included, from a node's attributes.

    `X` is the side that the windows slide over and `Y` has one entry per window.
    """
    n = len(kernel)
    strides = list(attrs.get("strides") or [1] * n)
    dilations = list(attrs.get("dilations") or [1] * n)
    auto = attrs.get("auto_pad", "NOTSET")
    w = Window(kernel, strides, dilations, [], [], None)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        for i, axis in enumerate(w.axes):
            total = op.Max(op.Sub(w.reach(op, op.dim(Y, axis), i), op.dim(X, axis)), [0])
            share_padding(op, w, total, upper=auto == "SAME_UPPER")
    else:
        pads = list(attrs.get("pads") or [0] * (2 * n)) if auto == "NOTSET" else [0] * (2 * n)
        vectors = [op.constant([p]) for p in pads]
        w.begin, w.end = vectors[:n], vectors[n:]
    w.explicit = known_padding(op, w)
    return w


def share_padding(op, w: Window, total, *, upper: bool) -> None:
    """Halve the padding of one axis; an odd one goes to the end with `upper`, else before."""
    half = op.Div(total, [2])
    rest = op.Sub(total, half)
    w.begin.append(half if upper else rest)
    w.end.append(rest if upper else half)


def known_padding(op, w: Window) -> list[int] | None:
    """Return begin then end as numbers; None when the run decides, or when some are negative."""
    known = [op.ints(v) for v in (*w.begin, *w.end)]
    if None in known or min(v[0] for v in known) < 0:
        return None
    return [v[0] for v in known]


def kernel_shape(op, W, attrs) -> list[Any]:
    """Return the kernel's spatial shape: the attribute, or the shape of the weights."""
    if attrs.get("kernel_shape"):
        return vectors(op, attrs["kernel_shape"])
    return [op.dim(W, axis) for axis in range(2, op.rank(W))]


def vectors(op, numbers) -> list[Any]:
    """Return each number as an int64 vector of length 1."""
    return [op.constant([n]) for n in numbers]


def transposed_windows(op, dY, W, like, w: Window, group: int):
    """The adjoint of sliding: add every window of dY·W into zeros of the shape of `like`."""
    common = {"strides": w.strides, "dilations": w.dilations, "group": group}
    lengths = [w.reach(op, op.dim(dY, axis), i) for i, axis in enumerate(w.axes)]
    # zeros to add after each axis (negative: to crop) = size + begin - length
    after = [
        op.Sub(op.Add(op.dim(like, axis), w.begin[i]), lengths[i]) for i, axis in enumerate(w.axes)
    ]
    known = [op.ints(v) for v in after]
    if w.explicit is not None and None not in known:
        begin = w.explicit[: len(w.kernel)]
        end = [max(-v[0], 0) for v in known]
        extra = [max(v[0], 0) for v in known]
        # ConvTranspose takes less extra than a stride; a kernel of 1 may skip more.
        if all(e < max(s, d) for e, s, d in zip(extra, w.strides, w.dilations, strict=True)):
            padding = extra if any(extra) else None
            return op.ConvTranspose(dY, W, pads=[*begin, *end], output_padding=padding, **common)
    full = op.ConvTranspose(dY, W, **common)
    pads = op.Concat(*[op.Neg(b) for b in w.begin], *after, axis=0)
    return op.Pad(full, pads, None, w.axes)
