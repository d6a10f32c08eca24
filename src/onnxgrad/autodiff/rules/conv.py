"""Convolutions, as ONNX Conv and ConvTranspose have them, in any number of dimensions."""

import math

import numpy as np

from onnxgrad.autodiff.rule import NoGradient, fused, rule
from onnxgrad.autodiff.rules._window import (
    kernel_shape,
    known_padding,
    share_padding,
    transposed_windows,
    window,
)
from onnxgrad.graph.infer import is_static

LARGE_PATCH = 256  # numbers that one pixel of the result is made of


@fused("Conv", wrt="X W B")
def conv_fused(op, X, W, B, Y, dY, *, attrs, need):
    """One kernel returns all three gradients; `need` leaves out the ones nobody asked for."""
    if "W" in need and _gains_from_training_kernel(op.dims(W), attrs.get("group", 1)):
        op.instead(Y, op.ConvTraining(X, W, B, **attrs))
    return op.ConvGrad(dY, X, W, **attrs, outputs=need)


def _gains_from_training_kernel(shape, group):
    """Say whether ConvTraining is faster than onnxruntime's Conv, which is made for constant weights.

    It is with several taps, and groups, enough channels, or large patches of few; else both are a plain matrix product.
    """
    if not is_static(shape):
        return False
    several = math.prod(shape[2:]) > 1
    return several and (group > 1 or shape[1] >= 16 or math.prod(shape[1:]) >= LARGE_PATCH)


@rule("Conv", wrt="X W B")
def conv(op, X, W, Y, dY, *, attrs, need):
    """dX: a transposed convolution with W. dW: X convolved with dY. dB: the sum of dY."""
    group = attrs.get("group", 1)
    w = window(op, X, Y, attrs, kernel_shape(op, W, attrs))
    return (
        transposed_windows(op, dY, W, X, w, group) if "X" in need else None,
        weight_gradient(op, X, dY, w, group, op.dim(W, 1)) if "W" in need else None,
        op.ReduceSum(dY, [0, *w.axes], keepdims=0) if "B" in need else None,
    )


def weight_gradient(op, X, dY, w, group, per_group):
    """dW[m, c, k] = Σ over n and o of dY[n, m, o] · X[n, c, o·stride + k·dilation - pad].

    That is a convolution in which the batch is summed over as channels are, the strides and
    dilations change places, and dY is the kernel. X [N, C, x...] is laid out as
    [C/g, g·N, x...], dY [N, M, y...] as [M, N, y...]; the result [C/g, M, k...] is turned.
    """
    swap = [1, 0, *w.axes]
    if group == 1:
        x = op.Transpose(X, perm=swap)
    else:
        space = [op.dim(X, a) for a in w.axes]
        split = op.Concat([0], [group], per_group, *space, axis=0)
        turned = op.Transpose(op.Reshape(X, split), perm=[2, 1, 0, *[a + 1 for a in w.axes]])
        x = op.Reshape(turned, op.Concat(per_group, [-1], *space, axis=0))
    x = _padded(op, x, w)
    out = op.Conv(
        x,
        op.Transpose(dY, perm=swap),
        strides=w.dilations,
        dilations=w.strides,
        pads=w.explicit,
        group=group,
    )
    # Where the last stride does not reach the edge the result has more than the kernel's taps.
    out = op.Slice(out, [0] * len(w.kernel), op.Concat(*w.kernel, axis=0), w.axes)
    return op.Transpose(out, perm=swap)


def _padded(op, x, w):
    """Pad by a node of its own what Conv's pads attribute cannot say: amounts of the run."""
    if w.explicit is not None:
        return x
    return op.Pad(x, op.Concat(*w.begin, *w.end, axis=0), None, w.axes)


@fused("ConvTranspose", wrt="X W B")
def conv_transpose_fused(op, X, W, dY, *, attrs, need):
    """As Conv."""
    return op.ConvTransposeGrad(dY, X, W, **attrs, outputs=need)


@rule("ConvTranspose", wrt="X W B")
def conv_transpose(op, X, W, Y, dY, *, attrs, need):
    """The adjoint of a convolution from Y to X: dX is that convolution, dW its weight gradient.

    W is [C, M/g, k...]; the convolution reads dY [N, M, y...] and writes [N, C, x...].
    """
    group = attrs.get("group", 1)
    w = _transposed_window(op, X, Y, W, attrs)
    dX = dW = dB = None
    if "X" in need:
        dX = op.Conv(
            _padded(op, dY, w),
            W,
            strides=w.strides,
            dilations=w.dilations,
            pads=w.explicit,
            group=group,
        )
        dX = op.crop_like(dX, X, w.axes)
    if "W" in need:
        dW = weight_gradient(op, dY, X, w, group, op.dim(W, 1))
    if "B" in need:
        dB = op.ReduceSum(dY, [0, *w.axes], keepdims=0)
    return dX, dW, dB


def _transposed_window(op, X, Y, W, attrs):
    """As `window`, with the padding of ConvTranspose's output.

    With output_shape or auto_pad the total is (in - 1)·stride + output_padding
    + (kernel - 1)·dilation + 1 - out, shared out between both ends.
    """
    kernel = kernel_shape(op, W, attrs)
    auto = attrs.get("auto_pad", "NOTSET")
    if not attrs.get("output_shape") and auto in ("NOTSET", "VALID"):
        return window(op, Y, X, attrs, kernel)
    w = window(op, Y, X, {**attrs, "auto_pad": "VALID"}, kernel)
    padding = list(attrs.get("output_padding") or [0] * len(kernel))
    w.begin, w.end = [], []
    for i, axis in enumerate(w.axes):
        full = op.Add(w.reach(op, op.dim(X, axis), i), [padding[i]])
        share_padding(op, w, op.Sub(full, op.dim(Y, axis)), upper=auto == "SAME_UPPER")
    w.explicit = known_padding(op, w)
    return w


@rule("Col2Im", wrt="input")
def col2im(op, input, image_shape, block_shape, doutput, *, dilations, pads, strides):
    """Col2Im adds columns into an image; its adjoint reads them out again.

    That is a convolution of each channel with unit kernels, one per place of the block.
    """
    known = op.ints(block_shape)
    if known is None:
        raise NoGradient("has a block shape that only the run knows", "make it constant")
    count = math.prod(known)
    unit = op.constant(np.eye(count).reshape(count, 1, *known), op.dtype(doutput))
    image = [op.dim(doutput, i) for i in range(2, 2 + len(known))]
    images = op.Reshape(doutput, op.Concat([-1], [1], *image, axis=0))
    columns = op.Conv(images, unit, dilations=dilations, pads=pads, strides=strides)
    return op.reshape_like(columns, input)
