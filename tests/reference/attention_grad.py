"""With W = dropout(P) and Y = W·V:  dV = Wᵀ·dY,  dP = dropout(dY·Vᵀ),  dS = P·(dP − Σ_l P·dP)."""

import numpy as np

from reference.attention_training import heads_of, scores_of, weights_of
from reference.seeded_dropout import seeded_dropout


def attention_grad(
    dY, Y, LSE, Q, K=None, V=None, mask=None, key=None,
    *, layout="heads", scale=0.0, causal=0, ratio=0.0, stream=0,
):  # fmt: skip
    packed = K is None
    after = packed or layout == "tokens"
    groups = Q.shape[3] if packed else K.shape[2 if after else 1]
    q, k, v = heads_of(Q, K, V, layout)
    dy = np.swapaxes(dY, 1, 2) if after else dY
    scores, factor = scores_of(q, k, mask, scale, causal)
    P = weights_of(scores)[0]

    def dropped(x):
        return seeded_dropout(x, key, ratio=ratio, stream=stream) if ratio else x

    dP = dropped(np.einsum("nhse,nhle->nhsl", dy, v))
    dS = P * (dP - (P * dP).sum(axis=-1, keepdims=True))
    dq = factor * np.einsum("nhsl,nhld->nhsd", dS, k)
    dk = _of_groups(factor * np.einsum("nhsl,nhsd->nhld", dS, q), groups)
    dv = _of_groups(np.einsum("nhsl,nhse->nhle", dropped(P), dy), groups)
    if after:
        dq, dk, dv = (np.swapaxes(t, 1, 2) for t in (dq, dk, dv))
    if packed:
        return np.stack([dq, dk, dv], axis=2), None, None, _summed(dS, mask)
    return dq, dk, dv, _summed(dS, mask)


def _of_groups(d, groups):
    """The heads that share keys add up."""
    n, heads, length, width = d.shape
    return d.reshape(n, groups, heads // groups if groups else 1, length, width).sum(axis=2)


def _summed(dS, mask):
    if mask is None:
        return None
    shape = (1,) * (4 - mask.ndim) + mask.shape
    if shape[3] == 1:  # added to all of a row, it cancels in the softmax
        return np.zeros_like(mask)
    axes = tuple(i for i in range(4) if shape[i] == 1)
    return dS.sum(axis=axes, keepdims=True).reshape(mask.shape)
