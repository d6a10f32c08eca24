"""P = softmax(scale·Q·Kᵀ + mask) over the keys that a row may read; Y = dropout(P)·V, one head at a time."""

import numpy as np

from reference.seeded_dropout import seeded_dropout


def heads_of(Q, K, V, layout):
    """Queries, keys and values as [N, heads, tokens, width]; every query head has its own keys."""
    if K is None:
        Q, K, V = np.moveaxis(Q, 2, 0)
        layout = "tokens"
    if layout == "tokens":
        Q, K, V = (np.swapaxes(t, 1, 2) for t in (Q, K, V))
    repeats = Q.shape[1] // K.shape[1] if K.shape[1] else 1
    return Q, np.repeat(K, repeats, axis=1), np.repeat(V, repeats, axis=1)


def scores_of(Q, K, mask, scale, causal):
    """−inf where a row may not read."""
    scale = scale or 1 / np.sqrt(max(1, Q.shape[-1]))
    if scale != 1 / np.sqrt(max(1, Q.shape[-1])):
        scale = float(np.float32(scale))  # attributes are floats
    scores = scale * np.einsum("nhsd,nhld->nhsl", Q, K)
    if mask is not None:
        scores = scores + mask
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    return scores, scale


def weights_of(scores):
    """Softmax of each row; its greatest score and log Σ exp(score − greatest), −inf where nothing is read."""
    greatest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    nothing = greatest == -np.inf
    e = np.exp(scores - np.where(nothing, 0, greatest))
    total = e.sum(axis=-1, keepdims=True)
    lse = np.concatenate([greatest, np.log(total)], axis=-1)
    return e / np.where(total == 0, 1, total), lse


def attention_training(
    Q, K=None, V=None, mask=None, key=None, *, layout="heads", scale=0.0, causal=0, ratio=0.0, stream=0
):  # fmt: skip
    after = K is None or layout == "tokens"
    Q, K, V = heads_of(Q, K, V, layout)
    P, lse = weights_of(scores_of(Q, K, mask, scale, causal)[0])
    if ratio:
        P = seeded_dropout(P, key, ratio=ratio, stream=stream)
    Y = np.einsum("nhsl,nhle->nhse", P, V)
    return np.swapaxes(Y, 1, 2) if after else Y, lse
