"""Operators in float64 that onnxruntime has in float only, so that central differences are sharp for them, too.

Each is a function of its inputs, by position, and its attributes, by name; it returns a tuple of outputs. They are
written from the text of ONNX, or of onnxruntime for its own, never from the rules that they judge.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from onnx.reference.op_run import OpRun
from reference.gru_training import gru_training
from reference.lstm_training import lstm_training
from reference.recurrent import activations_of, active_rows, steps

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# ---- recurrent


def _time_first(layout, X, *states):
    """layout 1 has the batch first, in X and in every state."""
    if not layout:
        return X, *states
    return X.transpose(1, 0, 2), *(None if s is None else s.transpose(1, 0, 2) for s in states)


def _batch_first(layout, Y, *states):
    if not layout:
        return Y, *states
    return Y.transpose(2, 0, 1, 3), *(s.transpose(1, 0, 2) for s in states)


def lstm(X, W, R, B=None, SL=None, H0=None, C0=None, P=None, *, layout=0, **attributes):
    X, H0, C0 = _time_first(layout, X, H0, C0)
    return _batch_first(layout, *lstm_training(X, W, R, B, SL, H0, C0, P, **attributes)[:3])


def gru(X, W, R, B=None, SL=None, H0=None, *, layout=0, **attributes):
    X, H0 = _time_first(layout, X, H0)
    return _batch_first(layout, *gru_training(X, W, R, B, SL, H0, **attributes)[:2])


def rnn(X, W, R, B=None, SL=None, H0=None, *, hidden_size, direction="forward", layout=0,
        activations=None):  # fmt: skip
    """h = f(x·Wᵀ + h·Rᵀ + Wb + Rb)."""
    X, H0 = _time_first(layout, X, H0)
    S, N, _ = X.shape
    D = W.shape[0]
    functions = activations_of(activations, None, None, ("Tanh",), D)
    Y, last = np.zeros((S, D, N, hidden_size)), np.zeros((D, N, hidden_size))
    for d in range(D):
        h = np.zeros((N, hidden_size)) if H0 is None else H0[d]
        bias = 0 if B is None else B[d, :hidden_size] + B[d, hidden_size:]
        for t in steps(direction, d, S):
            new = functions[d][0].value(X[t] @ W[d].T + h @ R[d].T + bias)
            active = active_rows(SL, t, N)
            h = np.where(active, new, h)
            Y[t, d] = np.where(active, new, 0)
        last[d] = h
    return _batch_first(layout, Y, last)


# ---- windows


def _windows(x, kernel, strides, pads, dilations):
    """For each place of the kernel: the elements that it meets, [N, C, out...]."""
    rank = len(kernel)
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    out = [(n - s) // t + 1 for n, s, t in zip(x.shape[2:], spans, strides, strict=True)]
    for place in itertools.product(*map(range, kernel)):
        picked = tuple(
            slice(p * d, p * d + (n - 1) * s + 1, s)
            for p, d, n, s in zip(place, dilations, out, strides, strict=True)
        )
        yield place, x[(slice(None), slice(None), *picked)]


def _padding(x, kernel, strides, pads, dilations, auto_pad):
    """The amounts of auto_pad: out = ceil(in / stride), the rest shared out between both ends."""
    rank = len(kernel)
    if auto_pad == "NOTSET":
        return pads or [0] * 2 * rank
    if auto_pad == "VALID":
        return [0] * 2 * rank
    total = [
        max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        for n, s, k, d in zip(x.shape[2:], strides, kernel, dilations, strict=True)
    ]
    less, more = [t // 2 for t in total], [t - t // 2 for t in total]
    return less + more if auto_pad == "SAME_UPPER" else more + less


def conv(
    X, W, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None,
):  # fmt: skip
    """Y[n, m, o] = Σ X[n, c, o·stride + k·dilation − pad] · W[m, c, k], channels by group."""
    kernel = W.shape[2:]
    ones = [1] * len(kernel)
    strides, dilations = strides or ones, dilations or ones
    pads = _padding(X, kernel, strides, pads, dilations, auto_pad)
    total = 0
    for place, x in _windows(X, kernel, strides, pads, dilations):
        grouped = x.reshape(x.shape[0], group, -1, *x.shape[2:])
        w = W[(..., *place)].reshape(group, -1, W.shape[1])
        y = np.einsum("ngc...,gmc->ngm...", grouped, w)
        total = total + y.reshape(x.shape[0], -1, *x.shape[2:])
    return total if B is None else total + B.reshape(-1, *ones)


class Conv(OpRun):
    """The reference evaluator's own fails for several groups."""

    op_domain = ""

    def _run(self, X, W, B=None, **attributes):
        return (conv(X, W, B, **attributes),)


def conv_transpose(
    X, W, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, output_padding=None,
    output_shape=None, pads=None, strides=None,
):  # fmt: skip
    """Each element of X adds its multiple of W to Y, W.shape = [C, M/group, kernel...]; the edges are cut off."""
    kernel, rank = W.shape[2:], W.ndim - 2
    ones = [1] * rank
    strides, dilations, extra = strides or ones, dilations or ones, output_padding or [0] * rank
    full = [
        (n - 1) * s + (k - 1) * d + 1 + e
        for n, s, k, d, e in zip(X.shape[2:], strides, kernel, dilations, extra, strict=True)
    ]
    Y = np.zeros((X.shape[0], group, W.shape[1], *full))
    grouped, w = X.reshape(X.shape[0], group, -1, *X.shape[2:]), W.reshape(group, -1, *W.shape[1:])
    for place in itertools.product(*map(range, kernel)):
        where = tuple(
            slice(p * d, p * d + (n - 1) * s + 1, s)
            for p, d, n, s in zip(place, dilations, X.shape[2:], strides, strict=True)
        )
        Y[(..., *where)] += np.einsum("ngc...,gcm->ngm...", grouped, w[(..., *place)])
    Y = Y.reshape(X.shape[0], -1, *full)
    cuts = _cuts(X.shape[2:], full, strides, pads, auto_pad, output_shape)
    Y = Y[(..., *(slice(low, n - high) for (low, high), n in zip(cuts, full, strict=True)))]
    return Y if B is None else Y + B.reshape(-1, *ones)


def _cuts(sizes, full, strides, pads, auto_pad, output_shape):
    """How much is cut off before and after each axis; a rest goes to the end for SAME_UPPER, else to the start."""
    rank = len(sizes)
    if auto_pad.startswith("SAME"):
        output_shape = [n * s for n, s in zip(sizes, strides, strict=True)]
    if output_shape is None:
        pads = pads or [0] * 2 * rank
        return list(zip(pads[:rank], pads[rank:], strict=True))
    totals = [f - n for f, n in zip(full, list(output_shape)[-rank:], strict=True)]
    if auto_pad == "SAME_UPPER":
        return [(t // 2, t - t // 2) for t in totals]
    return [(t - t // 2, t // 2) for t in totals]


class ConvTranspose(OpRun):
    """As Conv."""

    op_domain = ""

    def _run(self, X, W, B=None, **attributes):
        return (conv_transpose(X, W, B, **attributes),)


def lrn(X, *, size, alpha=1e-4, beta=0.75, bias=1.0):
    """Y = X / (bias + alpha/size · Σ X² over channels c − (size−1)//2 … c + size//2)^beta."""
    C = X.shape[1]
    total = np.zeros_like(X)
    for c in range(C):
        low, high = max(0, c - (size - 1) // 2), min(C - 1, c + size // 2)
        total[:, c] = (X[:, low : high + 1] ** 2).sum(1)
    return (X / (bias + alpha / size * total) ** beta,)


def global_lp_pool(X, *, p=2):
    axes = tuple(range(2, X.ndim))
    return ((np.abs(X) ** p).sum(axes, keepdims=True) ** (1 / p),)


# ---- normalisations


def _normal(x, axes, epsilon):
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + epsilon)


def group_normalization(X, scale, bias, *, num_groups, epsilon=1e-5, stash_type=1):
    """Scale and bias per channel from opset 21 on, per group before."""
    if len(scale) == num_groups:
        scale, bias = (np.repeat(v, X.shape[1] // num_groups) for v in (scale, bias))
    groups = X.reshape(X.shape[0], num_groups, -1)
    per_channel = [-1, *[1] * (X.ndim - 2)]
    y = _normal(groups, 2, epsilon).reshape(X.shape)
    return (y * scale.reshape(per_channel) + bias.reshape(per_channel),)


def mean_variance_normalization(X, *, axes=(0, 2, 3)):
    centred = X - X.mean(tuple(axes), keepdims=True)
    return (centred / (np.sqrt((centred**2).mean(tuple(axes), keepdims=True)) + 1e-9),)


def simplified_layer_normalization(X, scale, *, axis=-1, epsilon=1e-5):
    axes = tuple(range(axis % X.ndim, X.ndim))
    r = 1 / np.sqrt((X**2).mean(axes, keepdims=True) + epsilon)
    return X * r * scale, r


def skip_layer_normalization(x, skip, gamma, beta=None, bias=None, *, epsilon=1e-5):
    total = x + skip + (0 if bias is None else bias)
    return (_normal(total, -1, epsilon) * gamma + (0 if beta is None else beta),)


def skip_simplified_layer_normalization(x, skip, gamma, bias=None, *, epsilon=1e-5):
    return simplified_layer_normalization(
        x + skip + (0 if bias is None else bias), gamma, epsilon=epsilon
    )[:1]


def embed_layer_normalization(
    ids, segments, words, positions, segment_table, gamma, beta, *, epsilon=1e-12
):
    total = words[ids] + positions[np.arange(ids.shape[1])] + segment_table[segments]
    return _normal(total, -1, epsilon) * gamma + beta, np.zeros(ids.shape[0], np.int32)


# ---- activations and products


def gelu(x):
    return (x / 2 * (1 + erf(x / math.sqrt(2))),)


def shrink(x, *, lambd=0.5, bias=0.0):
    return (np.where(x > lambd, x - bias, np.where(x < -lambd, x + bias, 0)),)


def _activation(y, activation, alpha, beta=0.5):
    return {
        "Relu": lambda: np.maximum(y, 0),
        "LeakyRelu": lambda: np.where(y > 0, y, alpha * y),
        "Sigmoid": lambda: sigmoid(y),
        "Tanh": lambda: np.tanh(y),
        "Elu": lambda: np.where(y > 0, y, alpha * np.expm1(y)),
        "Softplus": lambda: np.log1p(np.exp(y)),
        "Softsign": lambda: y / (1 + np.abs(y)),
        "HardSigmoid": lambda: np.clip(alpha * y + beta, 0, 1),
    }[activation]()


def fused_gemm(A, B, C, *, activation, activation_alpha=0.0):
    return (_activation(A @ B + C, activation, activation_alpha),)


def fused_conv(X, W, B=None, Z=None, *, activation, activation_params=(0.0,), **attributes):
    y = conv(X, W, B, **attributes) + (0 if Z is None else Z)
    return (_activation(y, activation, *activation_params),)


# ---- attention


def _attend(q, k, v, scale, bias):
    """[batch, heads, sequence, size] each."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return softmax(q @ k.swapaxes(-1, -2) * scale + bias) @ v


def _split(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _join(y):
    return y.transpose(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1)


def _mask(keys, unidirectional, queries, length, low=-1e30):
    bias = np.zeros((1, 1, queries, length))
    if keys is not None:
        bias = bias + np.where(_read(keys, queries, length), 0, low)
    if unidirectional:
        bias = bias + np.where(np.tril(np.ones((queries, length))) > 0, 0, low)
    return bias


def _read(keys, queries, length):
    """[batch, 1, queries or 1, length]: `keys` says so, or how many there are and where each row begins."""
    if keys.ndim == 3:
        return keys[:, None] > 0
    if keys.ndim == 2:
        return keys[:, None, None, :] > 0
    lengths, starts = np.split(keys, 2) if len(keys) == 2 * 2 else (keys[:2], np.zeros(2, int))
    place = np.arange(length)
    return ((place < lengths[:, None]) & (place >= starts[:, None]))[:, None, None, :]


def multi_head_attention(
    query,
    key,
    value,
    bias=None,
    keys=None,
    attention_bias=None,
    *,
    num_heads,
    scale=None,
    unidirectional=0,
):
    if bias is not None:
        bq, bk, bv = np.split(bias, 3)
        query, key, value = query + bq, key + bk, value + bv
    q, k, v = (_split(x, num_heads) for x in (query, key, value))
    mask = _mask(keys, unidirectional, q.shape[2], k.shape[2])
    return (
        _join(_attend(q, k, v, scale, mask + (0 if attention_bias is None else attention_bias))),
    )


def packed_attention(x, weights, bias=None, keys=None, *, num_heads, unidirectional=0):
    q, k, v = np.split(x @ weights + (0 if bias is None else bias), 3, -1)
    return multi_head_attention(
        q, k, v, None, keys, num_heads=num_heads, unidirectional=unidirectional
    )


def rotary_embedding(x, positions, cos, sin):
    """Heads of twice the width of the tables; the first half turns with the second."""
    half = cos.shape[1]
    parts = x.reshape(*x.shape[:2], -1, 2 * half)
    c, s = (t[positions][:, :, None, :] for t in (cos, sin))
    a, b = parts[..., :half], parts[..., half:]
    return (np.concatenate([a * c - b * s, b * c + a * s], -1).reshape(x.shape),)


_MS = "com.microsoft"
EXACT = {
    ("", "LSTM"): lstm,
    ("", "GRU"): gru,
    ("", "RNN"): rnn,
    ("", "LRN"): lrn,
    ("", "GlobalLpPool"): global_lp_pool,
    ("", "Shrink"): shrink,
    ("", "GroupNormalization"): group_normalization,
    ("", "MeanVarianceNormalization"): mean_variance_normalization,
    ("", "SimplifiedLayerNormalization"): simplified_layer_normalization,
    (_MS, "SkipLayerNormalization"): skip_layer_normalization,
    (_MS, "SkipSimplifiedLayerNormalization"): skip_simplified_layer_normalization,
    (_MS, "EmbedLayerNormalization"): embed_layer_normalization,
    (_MS, "Gelu"): gelu,
    (_MS, "BiasGelu"): lambda a, b: gelu(a + b),
    (_MS, "FusedGemm"): fused_gemm,
    (_MS, "FusedConv"): fused_conv,
    (_MS, "MultiHeadAttention"): multi_head_attention,
    (_MS, "Attention"): packed_attention,
    (_MS, "RotaryEmbedding"): rotary_embedding,
}
