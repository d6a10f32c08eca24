"""A mask that batches and heads share: its gradient is their sum, whoever adds up, and changes nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from onnxgrad import kernels

# the second has gradients of more than 16 MiB in all, which no piece of work gets a copy of
SHARED = {"small": (3, 2, 40), "large": (3, 2, 900)}


@pytest.mark.parametrize("title", SHARED)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=["batches", "heads", "both"])
def test_a_shared_masks_gradient_is_the_sum(title, axes):
    n, h, s = SHARED[title]
    rng = np.random.default_rng(5)
    q, k, v, dy = (rng.normal(size=(n, h, s, 4)).astype(np.float32) for _ in range(4))
    shape = (*(1 if a in axes else size for a, size in enumerate((n, h))), s, s)
    mask = rng.normal(size=shape).astype(np.float32)
    y, lse = kernels.attention_training(q, k, v, mask)
    *others, dmask = kernels.attention_grad(dy, y, lse, q, k, v, mask)
    own = np.ascontiguousarray(np.broadcast_to(mask, (n, h, s, s)))
    expected = kernels.attention_grad(dy, y, lse, q, k, v, own)[3]
    np.testing.assert_allclose(
        dmask, expected.sum(axes, keepdims=True, dtype=np.float64), atol=1e-6
    )
    without = kernels.attention_grad(dy, y, lse, q, k, v, mask, outputs=("dQ", "dK", "dV"))
    for name, a, b in zip(("dQ", "dK", "dV"), others, without[:3], strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)
