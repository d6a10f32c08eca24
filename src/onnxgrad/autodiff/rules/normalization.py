"""Normalisations: batch, layer, instance, group, RMS, and by a norm.

With x̂ = (X - mean)·r, r = 1/√(var + ε) and g = dY·scale, a normalisation over n elements that
computes its own statistics has  dX = r · (g - mean(g) - x̂·mean(g·x̂)).
"""

import onnx_ir as ir

from onnxgrad.autodiff.rule import fused, rule


def _wide(op, *values):
    """Half-precision values as float: sums over a row lose too much in half precision."""
    half = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    return tuple(
        op.Cast(v, to=ir.DataType.FLOAT) if v is not None and v.dtype in half else v for v in values
    )


def _mean(op, x, axes):
    return op.ReduceMean(x, axes, keepdims=1)


def _inverse_deviation(op, variance, epsilon):
    return op.Reciprocal(op.Sqrt(op.Add(variance, epsilon)))


def _normalized(op, x, axes, epsilon):
    """Return x̂ and r, computed anew."""
    centred = op.Sub(x, _mean(op, x, axes))
    r = _inverse_deviation(op, _mean(op, op.Mul(centred, centred), axes), epsilon)
    return op.Mul(centred, r), r


def _centred_gradient(op, g, x_hat, r, axes):
    """dX = r · (g - mean(g) - x̂·mean(g·x̂))."""
    dot = _mean(op, op.Mul(g, x_hat), axes)
    return op.Mul(r, op.Sub(op.Sub(g, _mean(op, g, axes)), op.Mul(x_hat, dot)))


def _channels(op, v, rank):
    """[C] -> [C, 1, 1, …], which broadcasts against [N, C, spatial...]."""
    return op.Unsqueeze(v, list(range(1, rank - 1))) if rank > 2 else v


@rule("BatchNormalization", wrt="X scale B input_mean input_var")
def batch_normalization(
    op, X, scale, input_mean, input_var, dY, drunning_mean, drunning_var,
    *, epsilon, momentum, training_mode, need,
):  # fmt: skip
    """Inference mode: the statistics are inputs. Training mode: they are computed from X."""
    rank = op.rank(X)
    axes = [0, *range(2, rank)]
    X, scale, input_mean, input_var, dY = _wide(op, X, scale, input_mean, input_var, dY)
    if training_mode:
        return _batch_training(
            op, X, scale, dY, drunning_mean, drunning_var, rank, axes, epsilon, momentum
        )
    r = _inverse_deviation(op, input_var, epsilon)
    slope = op.Mul(scale, r)
    total = op.ReduceSum(dY, axes, keepdims=0)
    dX = op.Mul(dY, _channels(op, slope, rank)) if "X" in need else None
    dmean = op.Neg(op.Mul(total, slope)) if "input_mean" in need else None
    dscale = dvar = None
    if "scale" in need or "input_var" in need:
        centred = op.Sub(X, _channels(op, input_mean, rank))
        dscale = op.Mul(op.ReduceSum(op.Mul(dY, centred), axes, keepdims=0), r)
        # r = (var + ε)^-½, so dr/dvar = -½·r³
        dvar = op.Mul(op.Mul(op.Mul(dscale, scale), op.Mul(r, r)), -0.5)
    return dX, dscale, total, dmean, dvar


def _batch_training(op, X, scale, dY, dmean_out, dvar_out, rank, axes, epsilon, momentum):
    """running = input·momentum + own·(1 - momentum): both running outputs depend on X, too."""
    x_hat, r = _normalized(op, X, axes, epsilon)
    dX = dscale = dB = None
    if dY is not None:
        g = op.Mul(dY, _channels(op, scale, rank))
        dX = _centred_gradient(op, g, x_hat, r, axes)
        dscale = op.ReduceSum(op.Mul(dY, x_hat), axes, keepdims=0)
        dB = op.ReduceSum(dY, axes, keepdims=0)
    own = 1 - momentum
    n = op.count(X, r)
    if dmean_out is not None:
        each = op.Div(op.Mul(dmean_out, own), n)
        dX = op.Add(dX, op.expand_like(_channels(op, each, rank), X))
    if dvar_out is not None:  # d var / dX = 2·(X - mean)/n
        each = _channels(op, op.Div(op.Mul(dvar_out, 2 * own), n), rank)
        dX = op.Add(dX, op.Mul(op.Sub(X, _mean(op, X, axes)), each))
    return dX, dscale, dB, op.Mul(dmean_out, momentum), op.Mul(dvar_out, momentum)


@fused("BatchNormalization", wrt="X scale B input_mean input_var")
def batch_normalization_fused(
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
    op.replace(node, results)
    gradients = op.BatchNormalizationGrad(dY, X, scale, mean, deviation, epsilon=epsilon, outputs=3)
    return (*gradients, None, None)


@rule("LayerNormalization", wrt="X Scale B")
def layer_normalization(op, X, Scale, B, dY, dMean, dInvStdDev, *, axis, epsilon, need):
    """Over the axes from `axis` on. Mean and InvStdDev may have users of their own."""
    rank = op.rank(X)
    axes = list(range(axis % rank, rank))
    X, Scale, dY = _wide(op, X, Scale, dY)
    x_hat, r = _normalized(op, X, axes, epsilon)
    dX = None
    if dY is not None and "X" in need:
        dX = _centred_gradient(op, op.Mul(dY, Scale), x_hat, r, axes)
    if dMean is not None:
        n = op.count(X, r)
        dX = op.Add(dX, op.expand_like(op.Div(dMean, n), X))
    if dInvStdDev is not None:  # r = (var + ε)^-½: dr/dX = -r²·x̂/n
        n = op.count(X, r)
        each = op.Neg(op.Div(op.Mul(dInvStdDev, op.Mul(r, r)), n))
        dX = op.Add(dX, op.Mul(x_hat, each))
    dScale = op.sum_to(op.Mul(dY, x_hat), Scale) if "Scale" in need else None
    dB = op.sum_to(dY, B) if "B" in need else None
    return dX, dScale, dB


@fused("LayerNormalization", wrt="X Scale B")
def layer_normalization_fused(op, X, Scale, dY, dMean, dInvStdDev, *, axis, forward):
    """Mean and InvStdDev come from the forward node, in float: so is the kernel's use."""
    rank = op.rank(X)
    whole = op.rank(Scale) == rank - axis % rank
    if dMean is not None or dInvStdDev is not None or X.dtype != ir.DataType.FLOAT or not whole:
        return NotImplemented
    mean, deviation = forward("Mean"), forward("InvStdDev")
    return op.LayerNormalizationGrad(dY, X, Scale, mean, deviation, axis=axis, outputs=3)


def layer_gradient(op, X, Scale, dY, axes, epsilon):
    """The gradients of X and Scale, for operators that contain a LayerNormalization."""
    X, Scale, dY = _wide(op, X, Scale, dY)
    x_hat, r = _normalized(op, X, axes, epsilon)
    dX = _centred_gradient(op, op.Mul(dY, Scale), x_hat, r, axes)
    return dX, op.sum_to(op.Mul(dY, x_hat), Scale)


@rule("RMSNormalization", wrt="X scale")
def rms_normalization(op, X, scale, dY, *, axis, epsilon, need):
    """With r = 1/√(mean(X²) + ε), x̂ = X·r and g = dY·scale: dX = r·(g - x̂·mean(g·x̂))."""
    rank = op.rank(X)
    return rms_gradient(op, X, scale, dY, list(range(axis % rank, rank)), epsilon)


@fused("RMSNormalization", wrt="X scale")
def rms_normalization_fused(op, X, scale, dY, *, axis, epsilon):
    """The deviation, which the forward node does not give, is computed anew."""
    rank = op.rank(X)
    axes = list(range(axis % rank, rank))
    if op.rank(scale) != len(axes):
        return NotImplemented
    r = _inverse_deviation(op, _mean(op, op.Mul(X, X), axes), epsilon)
    return op.SimplifiedLayerNormalizationGrad(dY, X, scale, r, axis=axis, outputs=2)


def rms_gradient(op, X, scale, dY, axes, epsilon):
    """Shared with SimplifiedLayerNormalization, its older name."""
    X, scale, dY = _wide(op, X, scale, dY)
    r = _inverse_deviation(op, _mean(op, op.Mul(X, X), axes), epsilon)
    x_hat = op.Mul(X, r)
    g = op.Mul(dY, scale)
    dX = op.Mul(r, op.Sub(g, op.Mul(x_hat, _mean(op, op.Mul(g, x_hat), axes))))
    return dX, op.sum_to(op.Mul(dY, x_hat), scale)


@rule("InstanceNormalization", wrt="input scale B")
def instance_normalization(op, input, scale, doutput, *, epsilon, need):
    """Each channel of each sample by itself: over the spatial axes."""
    rank = op.rank(input)
    axes = list(range(2, rank))
    input, scale, doutput = _wide(op, input, scale, doutput)
    x_hat, r = _normalized(op, input, axes, epsilon)
    dX = None
    if "input" in need:
        dX = _centred_gradient(op, op.Mul(doutput, _channels(op, scale, rank)), x_hat, r, axes)
    dscale = op.ReduceSum(op.Mul(doutput, x_hat), [0, *axes], keepdims=0)
    return dX, dscale, op.ReduceSum(doutput, [0, *axes], keepdims=0)


@fused("InstanceNormalization", wrt="input scale B")
def instance_normalization_fused(op, input, scale, B, output, doutput, *, epsilon):
    """All three gradients in one pass. Forward, onnxruntime's kernel stays on one core."""
    channels = op.dims(scale)[0]
    if isinstance(channels, int) and channels > 0:
        settings = {"epsilon": epsilon, "num_groups": channels}
        op.instead(output, op.GroupNormalizationTraining(input, scale, B, **settings))
    return op.InstanceNormalizationGrad(doutput, input, scale, epsilon=epsilon, outputs=3)


@rule("GroupNormalization", wrt="X scale bias")
def group_normalization(op, X, scale, bias, dY, *, epsilon, num_groups, node, need):
    """X [N, C, …] viewed as [N, G, C/G·…]. Scale is per group in version 18, per channel in 21."""
    X, scale, dY = _wide(op, X, scale, dY)
    groups = op.Concat([0], [num_groups], [-1], axis=0)
    g3 = op.Reshape(X, groups)
    x_hat3, r = _normalized(op, g3, [2], epsilon)
    rank = op.rank(X)
    per_channel = op.opset >= 21
    if per_channel:
        g = op.Reshape(op.Mul(dY, _channels(op, scale, rank)), groups)
        x_hat = op.reshape_like(x_hat3, X)
        axes, dy = [0, *range(2, rank)], dY
    else:
        dy, x_hat, axes = op.Reshape(dY, groups), x_hat3, [0, 2]
        g = op.Mul(dy, op.Unsqueeze(scale, [1]))
    dX = op.reshape_like(_centred_gradient(op, g, x_hat3, r, [2]), X)
    return (
        dX,
        op.ReduceSum(op.Mul(dy, x_hat), axes, keepdims=0),
        op.ReduceSum(dy, axes, keepdims=0),
    )


@fused("GroupNormalization", wrt="X scale bias")
def group_normalization_fused(op, X, scale, bias, Y, dY, *, epsilon, num_groups):
    """All three gradients in one pass; and one forward, where onnxruntime has a chain of nodes."""
    settings = {"epsilon": epsilon, "num_groups": num_groups}
    op.instead(Y, op.GroupNormalizationTraining(X, scale, bias, **settings))
    return op.GroupNormalizationGrad(dY, X, scale, **settings, outputs=3)


@rule("LpNormalization", wrt="input")
def lp_normalization(op, input, output, doutput, *, axis, p):
    """Y = X/n. L2: dX = (dY - Y·Σ(Y·dY))/n. L1: dX = (dY - sign(X)·Σ(Y·dY))/n."""
    dot = op.ReduceSum(op.Mul(output, doutput), [axis], keepdims=1)
    if p == 1:
        norm = op.ReduceSum(op.Abs(input), [axis], keepdims=1)
        return op.Div(op.Sub(doutput, op.Mul(op.Sign(input), dot)), norm)
    norm = op.Sqrt(op.ReduceSum(op.Mul(input, input), [axis], keepdims=1))
    return op.Div(op.Sub(doutput, op.Mul(output, dot)), norm)


@rule("MeanVarianceNormalization", wrt="X")
def mean_variance_normalization(op, X, dY, *, axes):
    """A normalisation without scale; ONNX adds 1e-9 to the deviation, not to the variance."""
    centred = op.Sub(X, _mean(op, X, list(axes)))
    deviation = op.Sqrt(_mean(op, op.Mul(centred, centred), list(axes)))
    r = op.Reciprocal(op.Add(deviation, 1e-9))
    return _centred_gradient(op, dY, op.Mul(centred, r), r, list(axes))


@rule("LRN", wrt="X")
def local_response_normalization(op, X, Y, dY, *, alpha, beta, bias, size):
    """With S = bias + alpha/size·Σ X² over a window of channels, Y = X·S^-beta:

    dX = dY·S^-beta - 2·alpha·beta/size · X · Σ dY·Y/S over the windows that X is in.
    """
    before, after = (size - 1) // 2, size // 2
    total = op.Mul(_channel_sum(op, op.Mul(X, X), before, after), alpha / size)
    S = op.Add(total, bias)
    own = op.Mul(dY, op.Pow(S, -beta))
    others = _channel_sum(op, op.Div(op.Mul(dY, Y), S), after, before)
    return op.Sub(own, op.Mul(op.Mul(X, others), 2 * alpha * beta / size))


def _channel_sum(op, x, before, after):
    """The sum over `before` channels before and `after` channels after each, and itself."""
    wide = op.Pad(x, [before, after], None, [1])
    size = op.dim(x, 1)
    parts = [op.Slice(wide, [k], op.Add(size, [k]), [1]) for k in range(before + after + 1)]
    total = op.Sum(*parts)
    total.shape = x.shape
    return total
