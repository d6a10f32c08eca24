"""Gradients that are one kernel each: pools, picking, resizing, normalisations, dropout, the loss."""

import numpy as np
from onnx_ir import DataType

from onnxgrad.autodiff.rule import fused

fused("Gather", data=lambda op, data, indices, doutput, *, axis:
      op.GatherGrad(op.shape(data), indices, doutput, axis=axis))  # fmt: skip
fused("GatherElements", data=lambda op, data, indices, doutput, *, axis:
      op.GatherElementsGrad(doutput, op.shape(data), indices, axis=axis))  # fmt: skip
fused("GatherND", data=lambda op, data, indices, doutput, *, batch_dims:
      op.GatherNDGrad(op.shape(data), indices, doutput, batch_dims=batch_dims))  # fmt: skip
fused("Slice", data=lambda op, data, starts, ends, axes, steps, doutput:
      op.SliceGrad(doutput, op.shape(data), starts, ends, axes, steps))  # fmt: skip
fused("AveragePool", X=lambda op, X, dY, *, attrs:
      op.AveragePoolGrad(dY, op.shape(X), **attrs))  # fmt: skip


@fused("Clip", wrt="input min max")
def clip(op, input, min, max, doutput, *, need):
    """One pass instead of two comparisons, And and Where; gradients of the bounds are the standard rule's."""
    bounds = [b for b in (min, max) if b is not None]
    scalars = all(op.dims(b) == () for b in bounds)
    if set(need) != {"input"} or not bounds or not scalars:
        return NotImplemented
    return op.ClipGrad(doutput, input, min, max), None, None


@fused("MaxPool", wrt="X")
def max_pool(op, X, dY, *, attrs, storage_order, node):
    """MaxPoolTraining takes the node's place: onnxruntime's MaxPool is slow when it gives indices."""
    if storage_order or op.rank(X) > 5:
        return NotImplemented
    attrs = {k: v for k, v in attrs.items() if k != "storage_order"}
    results = op.MaxPoolTraining(X, **attrs, outputs=2)
    for old, new in zip(node.outputs, results, strict=False):
        if old.name:
            op.instead(old, new)
    return op.MaxPoolGrad(dY, results[1], op.shape(X))


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


@fused("BatchNormalization", wrt="X scale B input_mean input_var")
def batch_normalization(
    op, X, scale, B, input_mean, input_var, dY, drunning_mean, drunning_var,
    *, epsilon, momentum, training_mode, node, need,
):  # fmt: skip
    """Training mode only: BatchNormInternal takes the node's place, and keeps mean and deviation."""
    others = {"input_mean", "input_var"} & set(need)
    if not training_mode or drunning_mean is not None or drunning_var is not None or others:
        return NotImplemented
    present = [i < len(node.outputs) and bool(node.outputs[i].name) for i in range(3)]
    *results, mean, deviation = op.BatchNormInternal(
        X, scale, B, input_mean, input_var,
        epsilon=epsilon, momentum=momentum, outputs=[*present, True, True],
    )  # fmt: skip
    for old, new in zip(node.outputs, results, strict=False):
        if new is not None:
            op.instead(old, new)
    gradients = op.BatchNormalizationGrad(dY, X, scale, mean, deviation, epsilon=epsilon, outputs=3)
    return (*gradients, None, None)


@fused("LayerNormalization", wrt="X Scale B")
def layer_normalization(op, X, Scale, dY, dMean, dInvStdDev, *, axis, forward):
    """Mean and InvStdDev come from the forward node, in float: so is the kernel's use."""
    rank = op.rank(X)
    whole = op.rank(Scale) == rank - axis % rank
    if dMean is not None or dInvStdDev is not None or X.dtype != DataType.FLOAT or not whole:
        return NotImplemented
    mean, deviation = forward("Mean"), forward("InvStdDev")
    return op.LayerNormalizationGrad(dY, X, Scale, mean, deviation, axis=axis, outputs=3)


@fused("RMSNormalization", wrt="X scale")
def rms_normalization(op, X, scale, dY, *, axis, epsilon):
    """The deviation, which the forward node does not give, is computed anew."""
    rank = op.rank(X)
    axes = list(range(axis % rank, rank))
    if op.rank(scale) != len(axes):
        return NotImplemented
    square = op.ReduceMean(op.Mul(X, X), axes, keepdims=1)
    r = op.Reciprocal(op.Sqrt(op.Add(square, epsilon)))
    return op.SimplifiedLayerNormalizationGrad(dY, X, scale, r, axis=axis, outputs=2)


@fused("Dropout", wrt="data", stop="ratio")
def dropout(op, data, ratio, training_mode, doutput, *, forward):
    """In training mode; else nothing happened, which the standard rule says."""
    training = op.array(training_mode)
    own = ratio is None or (ratio.dtype == data.dtype and op.dims(ratio) == ())
    if training is None or not training or not own:
        return NotImplemented
    return op.DropoutGrad(doutput, forward("mask"), ratio)


@fused("SoftmaxCrossEntropyLoss", wrt="scores", stop="weights")
def softmax_cross_entropy(
    op, scores, labels, weights, doutput, dlog_prob, *, reduction, ignore_index, node
):
    """The kernel takes the node's place, and keeps log-probabilities; their own users are the standard rule's."""
    if dlog_prob is not None:
        return NotImplemented
    ignored = None if ignore_index is None else op.constant(np.array(ignore_index, np.int64))
    results = op.SoftmaxCrossEntropyLossInternal(
        scores, labels, weights, ignored, reduction=reduction, outputs=2
    )
    for old, new in zip(node.outputs, results, strict=False):
        if old.name:
            op.instead(old, new)
    return op.SoftmaxCrossEntropyLossInternalGrad(
        doutput, results[1], labels, weights, ignored, reduction=reduction
    )
