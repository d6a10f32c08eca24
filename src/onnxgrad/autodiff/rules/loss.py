"""Losses on class labels.

Each sample has the coefficient c = weight of its label, or 1, or 0 where it is ignored. The loss
of a sample is -c·log p[label]; "mean" divides their sum by Σc.
"""

import numpy as np

from onnxgrad.autodiff.rule import fused, rule


def _log_probability_gradient(op, scores, labels, weights, dloss, reduction, ignore_index):
    """The gradient of log p [N, C, …]: -c·dloss at the label of each sample [N, …], else 0."""
    used = None if ignore_index is None else op.Not(op.Equal(labels, ignore_index))
    c = None
    if weights is not None:
        c = op.Gather(weights, labels if used is None else op.Where(used, labels, 0))
    if used is not None:
        c = op.number(used, scores) if c is None else op.Where(used, c, 0.0)
    g = dloss if c is None else op.Mul(dloss, c)
    if reduction == "mean":
        total = op.number(op.Size(labels), scores) if c is None else op.ReduceSum(c, keepdims=0)
        g = op.Div(g, total)
    rank = op.rank(scores)
    classes = op.Reshape(op.range(op.dim(scores, 1)), [-1] + [1] * (rank - 2))
    classes = op.Cast(classes, to=op.dtype(labels))
    at_label = op.Equal(op.Unsqueeze(labels, [1]), classes)
    if c is not None or reduction == "none":
        g = op.Unsqueeze(g, [1])
    return op.Where(at_label, op.Neg(g), 0.0)


@rule("NegativeLogLikelihoodLoss", wrt="input", stop="weight")
def negative_log_likelihood(op, input, target, weight, dloss, *, reduction, ignore_index):
    """The input holds log-probabilities."""
    return _log_probability_gradient(op, input, target, weight, dloss, reduction, ignore_index)


@rule("SoftmaxCrossEntropyLoss", wrt="scores", stop="weights")
def softmax_cross_entropy(
    op, scores, labels, weights, log_prob, doutput, dlog_prob, *, reduction, ignore_index
):
    """Through log p = log_softmax(scores) on axis 1: dX = d(log p) - p·Σ d(log p)."""
    d = dlog_prob
    if doutput is not None:
        loss = _log_probability_gradient(
            op, scores, labels, weights, doutput, reduction, ignore_index
        )
        d = op.Add(loss, dlog_prob)
    return op.Sub(d, op.Mul(op.Exp(log_prob), op.ReduceSum(d, [1], keepdims=1)))


@fused("SoftmaxCrossEntropyLoss", wrt="scores", stop="weights")
def softmax_cross_entropy_fused(
    op, scores, labels, weights, doutput, dlog_prob, *, reduction, ignore_index, node
):
    """The kernel takes the node's place, and keeps log-probabilities; their own users are the standard rule's."""
    if dlog_prob is not None:
        return NotImplemented
    ignored = None if ignore_index is None else op.constant(np.array(ignore_index, np.int64))
    results = op.SoftmaxCrossEntropyLossInternal(
        scores, labels, weights, ignored, reduction=reduction, outputs=2
    )
    op.replace(node, results)
    return op.SoftmaxCrossEntropyLossInternalGrad(
        doutput, results[1], labels, weights, ignored, reduction=reduction
    )
