"""loss[k] = −w[label]·log p[label], reduced: dloss/dscore = (p − onehot)·w[label], and 0 where ignored."""

import numpy as np


def label_weights(labels, classes, weight, ignore_index):
    """w[label] for each label, 0 where it is ignored, and the labels with the ignored ones made 0."""
    counts = np.ones(labels.shape, bool) if ignore_index is None else labels != ignore_index
    safe = np.where(counts, labels, 0)
    if not classes:
        return np.zeros(labels.shape), safe
    table = np.ones(classes) if weight is None else weight
    return np.where(counts, table[safe], 0.0), safe


def softmax_cross_entropy_loss_grad(
    dY, log_prob, label, weight=None, *, reduction="mean", ignore_index=None
):
    classes = log_prob.shape[1]
    w, safe = label_weights(label, classes, weight, ignore_index)
    onehot = np.moveaxis(safe[..., None] == np.arange(classes), -1, 1)
    factor = w * (dY if reduction == "none" else np.reshape(dY, ()))
    if reduction == "mean":
        factor = np.where(w == 0, 0.0, factor / (w.sum() or 1.0))
    return np.where(factor[:, None] == 0, 0.0, (np.exp(log_prob) - onehot) * factor[:, None])
