"""FakeQuant and its gradients beside PyTorch's: per tensor and per channel, learned and not."""

import numpy as np
import pytest

from onnxgrad import kernels

pytestmark = pytest.mark.live

RANGES = [(-128, 127), (0, 255), (-8, 7)]
RNG = np.random.default_rng(0)


def drawn(low: int, high: int, scales: tuple[int, ...], place: str):
    """x, dy, scales, and zero points at one end of the range or in its middle; some of x lies beyond the range."""
    x, dy = RNG.standard_normal((2, 6, 5, 7, 4)).astype(np.float32)
    scale = RNG.uniform(2.0, 4.0, scales).astype(np.float32) / np.float32(high - low)
    zero = {"low": low, "middle": (low + high + 1) // 2, "high": high}[place]
    return x, dy, scale, np.full(scales, zero, np.float32)


ranges = pytest.mark.parametrize(("low", "high"), RANGES)
places = pytest.mark.parametrize("place", ["low", "middle", "high"])
learning = pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])


@ranges
@places
@learning
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_per_channel(low, high, place, learned, axis):
    torch = pytest.importorskip("torch")
    x, dy, scale, zero = drawn(low, high, ((6, 5, 7, 4)[axis],), place)
    tx, ts, tz = (torch.tensor(a, requires_grad=True) for a in (x, scale, zero))
    if learned:
        ty = torch._fake_quantize_learnable_per_channel_affine(tx, ts, tz, axis, low, high, 0.25)
    else:
        ints = tz.detach().to(torch.int32)
        ty = torch.fake_quantize_per_channel_affine(tx, ts.detach(), ints, axis, low, high)
    ty.backward(torch.tensor(dy))
    settings = dict(quant_min=low, quant_max=high, axis=axis)
    hold(x, dy, scale, zero, settings, ty, (tx, ts, tz) if learned else (tx,))


@ranges
@places
@learning
def test_per_tensor(low, high, place, learned):
    torch = pytest.importorskip("torch")
    x, dy, scale, zero = drawn(low, high, (1,), place)
    tx, ts, tz = (torch.tensor(a, requires_grad=True) for a in (x, scale, zero))
    if learned:
        ty = torch._fake_quantize_learnable_per_tensor_affine(tx, ts, tz, low, high, 0.25)
    else:
        ty = torch.fake_quantize_per_tensor_affine(tx, float(scale[0]), int(zero[0]), low, high)
    ty.backward(torch.tensor(dy))
    settings = dict(quant_min=low, quant_max=high)
    # Going back, PyTorch cuts zero + 0.5 to an integer, which for negative ones is one too many: only y is held to it.
    spoilt = learned and zero[0] < 0
    hold(x, dy, scale, zero, settings, ty, () if spoilt else (tx, ts, tz) if learned else (tx,))


def hold(x, dy, scale, zero, settings, ty, tensors) -> None:
    y, _ = kernels.fake_quant(x, scale, zero, **settings)
    grads = kernels.learned_fake_quant_grad(dy, x, scale, zero, grad_factor=0.25, **settings)
    np.testing.assert_allclose(y, ty.detach().numpy(), atol=1e-6)
    compare(grads, tensors)


def compare(grads, tensors) -> None:
    for ours, theirs in zip(grads, tensors, strict=False):
        np.testing.assert_allclose(ours, theirs.grad.numpy(), rtol=2e-4, atol=2e-4)
