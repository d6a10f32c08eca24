"""log_prob = log softmax(scores) over axis 1; the loss is −w[label]·log_prob[label], as in ONNX's definition, and 0
where every label is ignored (ONNX's mean would be 0/0; the old kernel gives 0 too).
"""

import numpy as np

from reference.softmax_cross_entropy_loss_grad import label_weights


def softmax_cross_entropy_loss_internal(
    scores, labels, weights=None, ignore_index=None, *, reduction="mean", output_type=None
):
    ignored = None if ignore_index is None else int(ignore_index)
    w, safe = label_weights(labels, scores.shape[1], weights, ignored)
    shifted = scores - scores.max(1, keepdims=True, initial=-np.inf)
    tops = (shifted == 0).sum(
        1, keepdims=True
    )  # each gives 1; beside it a small rest would be rounded away
    rest = np.where(shifted == 0, 0, np.exp(shifted)).sum(1, keepdims=True)
    log_prob = shifted - (np.log(tops) + np.log1p(rest / tops))
    own = (
        np.take_along_axis(log_prob, safe[:, None], 1)[:, 0]
        if log_prob.size
        else np.zeros(labels.shape)
    )
    loss = np.where(w == 0, 0.0, -w * own)
    if reduction == "none":
        return loss, log_prob
    return np.asarray(loss.sum() if reduction == "sum" else loss.sum() / (w.sum() or 1.0)), log_prob
