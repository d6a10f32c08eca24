"""Gradients that are one kernel each: pools, picking, resizing, normalisations and the loss."""

from onnx_ir import DataType

from onnxgrad.autodiff.rule import fused

fused("Gather", data=lambda op, data, indices, doutput, *, axis:
      op.GatherGrad(op.shape(data), indices, doutput, axis=axis))  # fmt: skip
fused("GatherElements", data=lambda op, data, indices, doutput, *, axis:
      op.GatherElementsGrad(doutput, op.shape(data), indices, axis=axis))  # fmt: skip
fused("GatherND", data=lambda op, data, indices, doutput, *, batch_dims:
      op.GatherNDGrad(op.shape(data), indices, doutput, batch_dims=batch_dims))  # fmt: skip
fused("AveragePool", X=lambda op, X, dY, *, attrs:
      op.AveragePoolGrad(dY, op.shape(X), **attrs))  # fmt: skip


@fused("MaxPool", wrt="X")
def max_pool(op, X, Indices, dY, *, storage_order):
    """Indices in row order only."""
    return NotImplemented if storage_order else op.MaxPoolGrad(dY, Indices, op.shape(X))


@fused("Resize", wrt="X", stop="roi scales")
def resize(op, X, roi, scales, sizes, dY, *, attrs):
    """The region is read in one mode only."""
    crop = attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    if crop and roi.dtype != X.dtype:
        return NotImplemented
    return op.ResizeGrad(dY, X, roi if crop else None, scales, sizes, **attrs)


@fused("InstanceNormalization", wrt="input scale B")
def instance_normalization(op, input, scale, doutput, *, epsilon):
    """All three gradients in one pass."""
    return op.InstanceNormalizationGrad(doutput, input, scale, epsilon=epsilon, outputs=3)


@fused("GroupNormalization", wrt="X scale bias")
def group_normalization(op, X, scale, dY, *, epsilon, num_groups):
    """All three gradients in one pass."""
    return op.GroupNormalizationGrad(
        dY, X, scale, epsilon=epsilon, num_groups=num_groups, outputs=3
    )


@fused("LayerNormalization", wrt="X Scale B")
def layer_normalization(op, X, Scale, dY, dMean, dInvStdDev, *, axis, forward):
    """Mean and InvStdDev come from the forward node, in float: so is the kernel's use."""
    rank = op.rank(X)
    whole = op.rank(Scale) == rank - axis % rank
    if dMean is not None or dInvStdDev is not None or X.dtype != DataType.FLOAT or not whole:
        return NotImplemented
    mean, deviation = forward("Mean"), forward("InvStdDev")
    return op.LayerNormalizationGrad(dY, X, Scale, mean, deviation, axis=axis, outputs=3)


@fused("SoftmaxCrossEntropyLoss", wrt="scores", stop="weights")
def softmax_cross_entropy(
    op, labels, weights, log_prob, doutput, dlog_prob, *, reduction, ignore_index
):
    """The log-probabilities come from the forward node; their own users are the standard rule's."""
    if dlog_prob is not None:
        return NotImplemented
    attrs = {} if ignore_index is None else {"ignore_index": ignore_index}
    return op.SoftmaxCrossEntropyLossGrad(
        doutput, log_prob, labels, weights, reduction=reduction, **attrs
    )
