"""FakeQuant and its gradients beside PyTorch's: per tensor and per channel, learned and not."""

import numpy as np
import pytest

from onnxgrad import kernels

pytestmark = pytest.mark.live

RANGES = [(-128, 127), (0, 255), (-8, 7)]
RNG = np.random.default_rng(0)


def drawn(low: int, high: int, scales: tuple[int, ...]):
    """x, dy, scales, and zero points in the middle of the range; some of x lies beyond it."""
    x, dy = RNG.standard_normal((2, 6, 5, 7, 4)).astype(np.float32)
    scale = RNG.uniform(2.0, 4.0, scales).astype(np.float32) / np.float32(high - low)
    zero = np.full(scales, (low + high + 1) // 2, np.float32)
    return x, dy, scale, zero


@pytest.mark.parametrize(("low", "high"), RANGES)
@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])
def test_per_channel(low, high, learned):
    torch = pytest.importorskip("torch")
    x, dy, scale, zero = drawn(low, high, (5,))
    tx, ts, tz = (torch.tensor(a, requires_grad=True) for a in (x, scale, zero))
    if learned:
        ty = torch._fake_quantize_learnable_per_channel_affine(tx, ts, tz, 1, low, high, 0.25)
    else:
        ints = tz.detach().to(torch.int32)
        ty = torch.fake_quantize_per_channel_affine(tx, ts.detach(), ints, 1, low, high)
    ty.backward(torch.tensor(dy))
    settings = dict(quant_min=low, quant_max=high, axis=1)
    y, _ = kernels.fake_quant(x, scale, zero, **settings)
    grads = kernels.learned_fake_quant_grad(dy, x, scale, zero, grad_factor=0.25, **settings)
    np.testing.assert_allclose(y, ty.detach().numpy(), atol=1e-6)
    compare(grads, (tx, ts, tz) if learned else (tx,))


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_per_tensor(low, high):
    torch = pytest.importorskip("torch")
    x, dy, scale, zero = drawn(low, high, (1,))
    tx, ts, tz = (torch.tensor(a, requires_grad=True) for a in (x, scale, zero))
    ty = torch._fake_quantize_learnable_per_tensor_affine(tx, ts, tz, low, high, 0.25)
    ty.backward(torch.tensor(dy))
    settings = dict(quant_min=low, quant_max=high)
    y, _ = kernels.fake_quant(x, scale, zero, **settings)
    grads = kernels.learned_fake_quant_grad(dy, x, scale, zero, grad_factor=0.25, **settings)
    np.testing.assert_allclose(y, ty.detach().numpy(), atol=1e-6)
    compare(grads, (tx, ts, tz))


def compare(grads, tensors) -> None:
    for ours, theirs in zip(grads, tensors, strict=False):
        np.testing.assert_allclose(ours, theirs.grad.numpy(), rtol=2e-4, atol=2e-4)
