"""Operators of onnxruntime's own domain that optimised models contain."""

import functools

from onnxgrad.autodiff.rule import NoGradient, fused, rule
from onnxgrad.autodiff.rules._move import spread_along
from onnxgrad.autodiff.rules._slopes import sigmoid_slope, tanh_slope
from onnxgrad.autodiff.rules.activation import fast_gelu_grad, gelu_grad, swish_grad
from onnxgrad.autodiff.rules.conv import conv
from onnxgrad.autodiff.rules.matmul import gemm_gradients, product_gradients
from onnxgrad.autodiff.rules.normalization import (
    layer_gradient,
    rms_gradient,
    rms_normalization_fused,
)

_rule = functools.partial(rule, domain="com.microsoft")
_fused = functools.partial(fused, domain="com.microsoft")

_rule("Gelu", inputs="X", outputs="Y", X=lambda op, X, dY: gelu_grad(op, X, dY))
_fused("Gelu", inputs="X", outputs="Y", X=lambda op, X, dY: op.GeluGrad(dY, X))

_rule("QuickGelu", inputs="X", outputs="Y",
      X=lambda op, X, dY, *, alpha=1.702: swish_grad(op, X, dY, alpha))  # fmt: skip
_fused("QuickGelu", inputs="X", outputs="Y",
       X=lambda op, X, dY, *, alpha=1.702: op.QuickGeluGrad(dY, X, alpha=alpha))  # fmt: skip

# The same key gives the same mask, so that the gradient needs none: dX is dY under the same dropout.
_rule("SeededDropout", inputs="X key", outputs="Y", stop="key",
      X=lambda op, key, dY, *, ratio=0.5, stream=0: op.SeededDropout(dY, key, ratio=ratio, stream=stream))  # fmt: skip


def _sum(op, X, bias):
    return X if bias is None else op.Add(X, bias)


@_rule("BiasGelu", inputs="A B", outputs="C", wrt="A B")
def bias_gelu(op, A, B, dC, *, need):
    """Gelu at A + B."""
    dA = gelu_grad(op, op.Add(A, B), dC)
    return dA, op.sum_to(dA, B)


@_fused("BiasGelu", inputs="A B", outputs="C", wrt="A B")
def bias_gelu_fused(op, A, B, dC, *, need):
    """Gelu at A + B."""
    if set(need) == {"A", "B"} and op.rank(B) == 1:
        return op.BiasGeluGrad(dC, A, B, outputs=2)
    dA = op.BiasGeluGrad_dX(dC, A, B)
    dA.shape = dC.shape
    return dA, op.sum_to(dA, B)


@_rule("FastGelu", inputs="X bias", outputs="Y", wrt="X bias")
def fast_gelu(op, X, bias, dY):
    """Gelu by tanh, at X + bias."""
    dX = fast_gelu_grad(op, _sum(op, X, bias), dY)
    return dX, None if bias is None else op.sum_to(dX, bias)


@_fused("FastGelu", inputs="X bias", outputs="Y", wrt="X bias")
def fast_gelu_fused(op, X, bias, dY):
    """Gelu by tanh, at X + bias."""
    dX = op.FastGeluGrad(dY, X) if bias is None else op.BiasFastGeluGrad_dX(dY, X, bias)
    dX.shape = dY.shape
    return dX, None if bias is None else op.sum_to(dX, bias)


@_rule("FusedMatMul", inputs="A B", outputs="Y", wrt="A B")
def fused_matmul(
    op, A, B, dY, *, need, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0
):
    """Y = alpha·A'·B', where ' swaps the last two axes when its flag is set.

    transBatch first moves the first axis behind the other batch axes.
    """
    A1, undo_a = _arranged(op, A, transA, transBatchA)
    B1, undo_b = _arranged(op, B, transB, transBatchB)
    dA, dB = product_gradients(op, A1, B1, op.Mul(dY, float(alpha)), need)
    return None if dA is None else undo_a(dA), None if dB is None else undo_b(dB)


def _arranged(op, x, swap, batch):
    """A factor as it enters the product, and how its gradient goes back."""
    rank = op.rank(x)
    order = list(range(rank))
    if batch:
        order = [*order[1:-1], 0, order[-1]]
    if swap and rank > 1:
        order[-2:] = order[:-3:-1]
    back = [order.index(i) for i in range(rank)]
    return op.Transpose(x, perm=order), lambda d: op.Transpose(d, perm=back)


def _activation_slope(op, Y, dY, activation, params):
    """The gradient before a fused activation, from its output, which is what the node has."""
    alpha = float(params[0]) if params else 0.01
    if activation in (None, ""):
        return dY
    if activation == "Relu":
        return op.Where(op.Greater(Y, 0.0), dY, 0.0)
    if activation == "LeakyRelu" and alpha > 0:
        return op.Where(op.Greater(Y, 0.0), dY, op.Mul(dY, alpha))
    if activation == "Sigmoid":
        return op.Mul(dY, sigmoid_slope(op, Y))
    if activation == "Tanh":
        return op.Mul(dY, tanh_slope(op, Y))
    if activation == "Elu":  # alpha·(e^x - 1) below zero: the slope is Y + alpha
        alpha = float(params[0]) if params else 1.0
        return op.Where(op.Greater(Y, 0.0), dY, op.Mul(dY, op.Add(Y, alpha)))
    if activation == "Softplus":  # log(1 + e^x): the slope is 1 - e^-Y
        return op.Mul(dY, op.Sub(1.0, op.Exp(op.Neg(Y))))
    if activation == "Softsign":  # x/(1 + |x|): the slope is (1 - |Y|)²
        rest = op.Sub(1.0, op.Abs(Y))
        return op.Mul(dY, op.Mul(rest, rest))
    if activation == "HardSigmoid":
        inside = op.And(op.Greater(Y, 0.0), op.Less(Y, 1.0))
        return op.Where(inside, op.Mul(dY, float(params[0]) if params else 0.2), 0.0)
    if activation == "Clip":
        inside = op.And(op.Greater(Y, float(params[0])), op.Less(Y, float(params[1])))
        return op.Where(inside, dY, 0.0)
    raise NoGradient(
        f"has the fused activation {activation}, whose slope its output does not tell",
        "turn off onnxruntime's optimisations when saving the model",
    )


@_rule("FusedGemm", inputs="A B C", outputs="Y", wrt="A B C")
def fused_gemm(
    op, A, B, C, Y, dY,
    *, need, alpha=1.0, beta=1.0, transA=0, transB=0, activation=None, activation_alpha=None,
):  # fmt: skip
    """Gemm, then an activation."""
    params = None if activation_alpha is None else [activation_alpha]
    dY = _activation_slope(op, Y, dY, activation, params)
    return gemm_gradients(op, A, B, C, dY, alpha, beta, transA, transB, need)


@_rule("FusedConv", inputs="X W B Z", outputs="Y", wrt="X W B Z")
def fused_conv(op, X, W, B, Z, Y, dY, *, attrs, need, activation=None, activation_params=None):
    """Conv, plus Z, then an activation."""
    dY = _activation_slope(op, Y, dY, activation, activation_params)
    plain = {k: v for k, v in attrs.items() if not k.startswith("activation")}
    return (*conv(op, X, W, Y, dY, attrs=plain, need=need), dY if "Z" in need else None)


@rule("SimplifiedLayerNormalization", inputs="X scale", outputs="Y inv_std_var", wrt="X scale")
def simplified_layer_normalization(op, X, scale, dY, dinv_std_var, *, node, axis=-1, epsilon=1e-5):
    """RMSNormalization by its older name; onnxruntime keeps it in ONNX's own domain.

    Its second output r = (mean(X²) + ε)^-½ may have users of its own: dr/dX = -r³·X/n.
    """
    rank = op.rank(X)
    axes = list(range(axis % rank, rank))
    dX = dscale = None
    if dY is not None:
        dX, dscale = rms_gradient(op, X, scale, dY, axes, float(epsilon))
    if dinv_std_var is not None:
        r = node.outputs[1]
        n = op.count(X, r)
        cube = op.Mul(op.Mul(r, r), r)
        dX = op.Sub(dX, op.Mul(X, op.Div(op.Mul(dinv_std_var, cube), n)))
    return dX, dscale


@fused("SimplifiedLayerNormalization", inputs="X scale", outputs="Y inv_std_var", wrt="X scale")
def simplified_layer_normalization_fused(
    op, X, scale, dY, dinv_std_var, *, node, axis=-1, epsilon=1e-5
):
    """As RMSNormalization; by the forward node's own deviation where it gives one."""
    if dinv_std_var is not None:
        return NotImplemented
    if (
        len(node.outputs) > 1
        and node.outputs[1].name
        and op.rank(scale) == op.rank(X) - axis % op.rank(X)
    ):
        r = node.outputs[1]
        return op.SimplifiedLayerNormalizationGrad(dY, X, scale, r, axis=axis, outputs=2)
    return rms_normalization_fused(op, X, scale, dY, axis=axis, epsilon=float(epsilon))


@_rule(
    "SkipLayerNormalization", inputs="input skip gamma beta bias",
    outputs="output mean inv_std_var input_skip_bias_sum", wrt="input skip gamma beta bias",
)  # fmt: skip
def skip_layer_normalization(
    op, input, skip, gamma, beta, bias, doutput, dinput_skip_bias_sum, *, epsilon=1e-5
):
    """LayerNormalization of input + skip + bias on the last axis; the sum is an output, too."""
    total = _sum(op, op.Add(input, skip), bias)
    dsum, dgamma = None, None
    if doutput is not None:
        axes = [op.rank(input) - 1]
        dsum, dgamma = layer_gradient(op, total, gamma, doutput, axes, float(epsilon))
    return _shared_by_sum(op, op.Add(dsum, dinput_skip_bias_sum), skip, bias) | {
        "gamma": dgamma,
        "beta": None if beta is None else op.sum_to(doutput, beta),
    }


@_rule(
    "SkipSimplifiedLayerNormalization", inputs="input skip gamma bias",
    outputs="output mean inv_std_var input_skip_bias_sum", wrt="input skip gamma bias",
)  # fmt: skip
def skip_simplified_layer_normalization(
    op, input, skip, gamma, bias, doutput, dinput_skip_bias_sum, *, epsilon=1e-5
):
    """RMSNormalization of input + skip + bias on the last axis; the sum is an output, too."""
    total = _sum(op, op.Add(input, skip), bias)
    dsum, dgamma = None, None
    if doutput is not None:
        axes = [op.rank(input) - 1]
        dsum, dgamma = rms_gradient(op, total, gamma, doutput, axes, float(epsilon))
    return _shared_by_sum(op, op.Add(dsum, dinput_skip_bias_sum), skip, bias) | {"gamma": dgamma}


def _shared_by_sum(op, d, skip, bias):
    return {
        "input": d,
        "skip": op.sum_to(d, skip),
        "bias": None if bias is None else op.sum_to(d, bias),
    }


@_rule(
    "EmbedLayerNormalization",
    inputs="input_ids segment_ids word_embedding position_embedding segment_embedding gamma beta "
    "mask position_ids",
    outputs="output mask_index embedding_sum",
    wrt="word_embedding position_embedding segment_embedding gamma beta",
)
def embed_layer_normalization(
    op, input_ids, segment_ids, word_embedding, position_embedding, segment_embedding, gamma, beta,
    position_ids, doutput, dembedding_sum, *, need, epsilon=1e-12,
):  # fmt: skip
    """LayerNormalization of word + position + segment embeddings [batch, sequence, hidden]."""
    positions = position_ids
    if positions is None:
        positions = op.Expand(op.range(op.dim(input_ids, 1)), op.Shape(input_ids))
    tables = {
        "word_embedding": (word_embedding, input_ids),
        "position_embedding": (position_embedding, positions),
    }
    if segment_ids is not None:
        tables["segment_embedding"] = (segment_embedding, segment_ids)
    total = op.Sum(*[op.Gather(table, ids) for table, ids in tables.values()])
    dsum = dgamma = None
    if doutput is not None:
        dsum, dgamma = layer_gradient(op, total, gamma, doutput, [2], float(epsilon))
    d = op.Add(dsum, dembedding_sum)
    gradients = {"gamma": dgamma, "beta": op.sum_to(doutput, beta)}
    for name, (table, ids) in tables.items():
        if name in need:
            rows = op.Reshape(d, op.Concat([-1], op.dim(table, 1), axis=0))
            gradients[name] = spread_along(op, rows, op.Reshape(ids, [-1]), op.dim(table, 0), 0)
    return gradients
