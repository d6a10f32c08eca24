"""ConvTraining and ConvGrad against PyTorch's own convolution, in double."""

import numpy as np
import pytest

from onnxgrad import kernels

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.live

# images, channels, filters, size, kernel, stride, pad, dilation, groups
SHAPES = [
    (2, 6, 4, (40,), 5, 2, 3, 2, 2),
    (2, 16, 32, (15, 13), 3, 1, 1, 1, 1),
    (2, 16, 32, (15, 13), 3, 2, 1, 1, 1),
    (1, 8, 8, (12, 12), 3, 1, 1, 1, 8),
    (2, 20, 30, (9, 9), 1, 1, 0, 1, 1),
    (1, 3, 16, (30, 31), 7, 2, 3, 1, 1),
    (1, 4, 6, (6, 7, 8), 3, 1, 2, 2, 1),
    (2, 3, 6, (9, 8), 3, 2, 0, 1, 3),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_convolution_backward(shape):
    n, c, m, size, kernel, stride, pad, dilation, groups = shape
    rank = len(size)
    out = [(i + 2 * pad - (kernel - 1) * dilation - 1) // stride + 1 for i in size]
    rng = np.random.default_rng(5)
    dy, x = rng.normal(size=(n, m, *out)), rng.normal(size=(n, c, *size))
    w = rng.normal(size=(m, c // groups, *[kernel] * rank))
    expected = torch.ops.aten.convolution_backward(
        *map(torch.tensor, (dy, x, w)), [m], [stride] * rank, [pad] * rank, [dilation] * rank,
        False, [0] * rank, groups, [True] * 3,
    )  # fmt: skip
    got = kernels.conv_grad(
        dy, x, w, strides=[stride] * rank, pads=[pad] * 2 * rank, dilations=[dilation] * rank, group=groups
    )  # fmt: skip
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_convolution(shape):
    n, c, m, size, kernel, stride, pad, dilation, groups = shape
    rank = len(size)
    rng = np.random.default_rng(5)
    x, b = rng.normal(size=(n, c, *size)), rng.normal(size=m)
    w = rng.normal(size=(m, c // groups, *[kernel] * rank))
    expected = torch.ops.aten.convolution(
        *map(torch.tensor, (x, w, b)), [stride] * rank, [pad] * rank, [dilation] * rank,
        False, [0] * rank, groups,
    )  # fmt: skip
    got = kernels.conv_training(
        x, w, b, strides=[stride] * rank, pads=[pad] * 2 * rank, dilations=[dilation] * rank, group=groups
    )  # fmt: skip
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-11, atol=1e-11)
