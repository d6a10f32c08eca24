"""The mean, or sum, of log Σ exp(scores) − scores[label] over the labels that count; scores = X·W."""

import numpy as np


def linear_cross_entropy(X, labels, W, ignore_index=None, *, reduction="mean", transB=0):
    return of_scores(X, labels, W.T if transB else W, ignore_index, reduction)


def of_scores(X, labels, W, ignore_index, reduction):
    """The loss, and its gradient by X."""
    counts = np.ones(labels.shape, bool) if ignore_index is None else labels != int(ignore_index)
    scores = X @ W
    shifted = scores - scores.max(-1, keepdims=True, initial=-np.inf)
    p = np.exp(shifted)
    total = p.sum(-1, keepdims=True)
    labels = np.where(counts, labels, 0)
    own = np.take_along_axis(shifted, labels[..., None], -1)[..., 0] if shifted.size else 0.0
    each = np.where(counts, np.log(total)[..., 0] - own, 0.0)
    factor = 1.0 / max(1, counts.sum()) if reduction == "mean" else 1.0
    one_hot = np.arange(W.shape[1]) == labels[..., None]
    d = np.where(counts[..., None], (p / total - one_hot) * factor, 0.0)
    return np.asarray(each.sum() * factor), d @ W.T
