"""As SoftmaxCrossEntropyLossGrad, with ignore_index as an input, and `bias` added to the result."""

from reference.softmax_cross_entropy_loss_grad import softmax_cross_entropy_loss_grad


def softmax_cross_entropy_loss_internal_grad(
    dY,
    log_prob,
    label,
    weight=None,
    ignore_index=None,
    bias=None,
    *,
    reduction="mean",
    output_type=None,
):
    ignored = None if ignore_index is None else int(ignore_index)
    d = softmax_cross_entropy_loss_grad(
        dY, log_prob, label, weight, reduction=reduction, ignore_index=ignored
    )
    return d if bias is None else d + bias.reshape(d.shape)
