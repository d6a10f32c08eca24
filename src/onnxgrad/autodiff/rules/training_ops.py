"""onnxgrad's own forward operators, which stand in training graphs for what exporters write out in parts."""

import functools

from onnxgrad.autodiff.rule import Need, rule

_rule = functools.partial(rule, domain="com.microsoft")


@_rule("AttentionTraining", inputs="Q K V mask key", outputs="Y LSE", wrt="Q K V mask",
      stop="key")  # fmt: skip
def attention_training(op, Q, K, V, mask, key, Y, LSE, dY, *, attrs, need):
    """One kernel gives all gradients; it computes the weights anew from LSE."""
    flags = [True, *(name in need for name in ("K", "V", "mask"))]
    gradients = op.AttentionGrad(dY, Y, LSE, Q, K, V, mask, key, **attrs, outputs=flags)
    return dict(zip(("Q", "K", "V", "mask"), gradients, strict=True))


@_rule("GeluTraining", inputs="X", outputs="Y", wrt="X")
def gelu_training(op, X, dY, *, form="erf", alpha=1.0):
    """Each form has its kernel."""
    if form == "sigmoid":
        return op.QuickGeluGrad(dY, X, alpha=float(alpha))
    if form == "hard":
        return op.HardSwishGrad(dY, X)
    return op.GeluGrad(dY, X) if form == "erf" else op.FastGeluGrad(dY, X)


@_rule("GateTraining", inputs="X", outputs="Y", wrt="X")
def gate_training(op, X, dY, *, attrs):
    """Both halves in one pass; tanh and sigmoid are computed anew."""
    return op.GateGrad(dY, X, **attrs)


@_rule("GroupNormalizationTraining", inputs="X scale bias", outputs="Y", wrt="X scale bias")
def group_normalization_training(op, X, scale, Y, dY, *, attrs):
    """All three gradients in one pass, that of a Relu with them."""
    settings = {name: value for name, value in attrs.items() if name != "activation"}
    cut = Y if attrs.get("activation") == "relu" else None
    return op.GroupNormalizationGrad(dY, X, scale, cut, **settings, outputs=3)


@_rule("LinearTraining", inputs="X W B added", outputs="Y", wrt="X W B added")
def linear_training(op, X, W, dY, *, need):
    """dX, dW and dB in one call, which packs dY once; what was added gets dY as it is."""
    of_product = Need.of(("X", "W", "B"), need)
    gradients = op.LinearGrad(dY, X, W, outputs=of_product) if of_product else (None,) * 3
    return (*gradients, dY if "added" in need else None)


@_rule("MaxPoolTraining", inputs="X", outputs="Y Indices", wrt="X")
def max_pool_training(op, X, Y, Indices, dY, *, activation="none"):
    """The cotangent goes back to where each maximum stood."""
    return op.MaxPoolGrad(dY, Indices, op.shape(X), Y if activation == "relu" else None)


# The operator has computed its gradient on the way, for a cotangent of 1.


@_rule("LinearCrossEntropy", inputs="X labels W ignore_index", outputs="loss dX", wrt="X", stop="W")
def linear_cross_entropy(op, dX, dloss):
    return op.Mul(dX, dloss)


@_rule("MatMulNBitsCrossEntropy", inputs="X labels B scales zero_points zeros ignore_index",
      outputs="loss dX", wrt="X", stop="scales zeros")  # fmt: skip
def mat_mul_n_bits_cross_entropy(op, dX, dloss):
    return op.Mul(dX, dloss)
