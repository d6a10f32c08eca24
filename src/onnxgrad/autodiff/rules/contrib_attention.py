"""Attention and rotary embeddings as onnxruntime's optimiser writes them.

With P = softmax(scale·Q·Kᵀ + bias) and O = P·V: dV = Pᵀ·dO, dP = dO·Vᵀ,
dS = P·(dP - Σ(P·dP)), dQ = scale·dS·K, dK = scale·dSᵀ·Q. P is computed anew.
"""

import functools
import math

import onnx_ir as ir

from onnxgrad.autodiff.rule import NoGradient, rule
from onnxgrad.autodiff.rules.matmul import gemm_gradients

_rule = functools.partial(rule, domain="com.microsoft")


def _attention(op, Q, K, V, bias, dO, scale):
    """Heads [B, H, S, D]; returns dQ, dK, dV and dS, which is the gradient of the bias."""
    scores = op.Mul(op.MatMul(Q, op.Transpose(K, perm=[0, 1, 3, 2])), scale)
    P = op.Softmax(scores if bias is None else op.Add(scores, bias), axis=-1)
    dV = op.MatMul(op.Transpose(P, perm=[0, 1, 3, 2]), dO)
    dP = op.MatMul(dO, op.Transpose(V, perm=[0, 1, 3, 2]))
    dot = op.ReduceSum(op.Mul(P, dP), [3], keepdims=1)
    dS = op.Mul(P, op.Sub(dP, dot))
    scaled = op.Mul(dS, scale)
    return op.MatMul(scaled, K), op.MatMul(op.Transpose(scaled, perm=[0, 1, 3, 2]), Q), dV, dS


def _heads(op, x, heads):
    """[B, S, H·D] -> [B, H, S, D]."""
    return op.Transpose(op.Reshape(x, [0, 0, heads, -1]), perm=[0, 2, 1, 3])


def _joined(op, x):
    """[B, H, S, D] -> [B, S, H·D]."""
    return op.Reshape(op.Transpose(x, perm=[0, 2, 1, 3]), [0, 0, -1])


def _masks(op, Q, K, mask, bias, causal, filler):
    """What is added to the scores: the bias, and a large negative number where nothing is read."""
    total = bias
    if mask is not None:
        off = op.Where(_unread(op, Q, K, mask), filler, 0.0)
        off = op.Cast(off, to=op.dtype(Q))
        total = off if total is None else op.Add(total, off)
    if causal:
        rows, columns = op.range(op.dim(Q, 2)), op.range(op.dim(K, 2))
        ahead = op.Greater(op.Unsqueeze(columns, [0]), op.Unsqueeze(rows, [1]))
        off = op.Where(ahead, op.constant(filler, op.dtype(Q)), op.constant(0, op.dtype(Q)))
        total = off if total is None else op.Add(total, off)
    return total


def _unread(op, Q, K, mask):
    """Where no key is read, to broadcast against the scores [B, H, S, T].

    The mask is [B, T] or [B, S, T] with 0 for what is not read, or as many numbers as there are rows: how many
    keys each has. Behind them may stand where each row begins; 3·B + 2 numbers begin with the lengths as well.
    """
    rank = op.rank(mask)
    if rank == 1:
        rows, keys = op.dim(Q, 0), op.Unsqueeze(op.range(op.dim(K, 2)), [0])
        given = op.Cast(mask, to=ir.DataType.INT64)
        size, twice = op.Shape(given), op.Mul(rows, [2])
        padded = op.Concat(given, op.full(rows, 0, ir.DataType.INT64), axis=0)
        starts = op.Cast(op.Equal(size, twice), to=ir.DataType.INT64)
        first = op.Mul(op.Slice(padded, rows, twice, [0]), starts)
        lengths = op.Slice(padded, [0], rows, [0])
        behind = op.GreaterOrEqual(keys, op.Unsqueeze(lengths, [1]))
        return op.Unsqueeze(op.Or(behind, op.Less(keys, op.Unsqueeze(first, [1]))), [1, 2])
    if rank not in (2, 3):
        raise NoGradient(f"has a mask of rank {rank}", "use a mask [batch, keys]")
    unread = op.Equal(mask, op.Cast(op.constant(0), to=op.dtype(mask)))
    return op.Unsqueeze(unread, [1, 2] if rank == 2 else [1])


def _scale(op, Q, scale):
    size = op.dims(Q)[3]
    if scale:
        return float(scale)
    if isinstance(size, int):
        return 1 / math.sqrt(size)
    return op.Reciprocal(op.Sqrt(op.number(op.Reshape(op.dim(Q, 3), []), Q)))


def _refuse_past(*values):
    if any(v is not None for v in values):
        raise NoGradient("reads past keys and values", "train without a cache")


@_rule(
    "MultiHeadAttention",
    inputs="query key value bias key_padding_mask attention_bias past_key past_value",
    outputs="output present_key present_value",
    wrt="query key value bias attention_bias",
)
def multi_head_attention(
    op, query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value, doutput,
    *, need, num_heads, scale=0.0, unidirectional=0, mask_filter_value=-10000.0,
):  # fmt: skip
    """Q, K and V are given as [B, S, hidden], each with its part of the bias."""
    _refuse_past(past_key, past_value)
    if key is None or value is None or {op.rank(v) for v in (query, key, value)} != {3}:
        raise NoGradient("has packed queries, keys or values", "give them as [batch, S, hidden]")
    given = [query, key, value]
    if bias is not None:
        sizes = op.Concat(*[op.dim(v, 2) for v in given], axis=0)
        parts = op.Split(bias, sizes, axis=0, outputs=3)
        given = [op.Add(x, b) for x, b in zip(given, parts, strict=True)]
    Q, K, V = (_heads(op, x, num_heads) for x in given)
    mask = _masks(
        op, Q, K, key_padding_mask, attention_bias, unidirectional, float(mask_filter_value)
    )
    dO = _heads(op, doutput, num_heads)
    *parts, dS = _attention(op, Q, K, V, mask, dO, _scale(op, Q, scale))
    parts = [_joined(op, d) for d in parts]
    dbias = None
    if "bias" in need:
        dbias = op.Concat(*[op.ReduceSum(d, [0, 1], keepdims=0) for d in parts], axis=0)
    extra = op.sum_to(dS, attention_bias) if "attention_bias" in need else None
    return (*parts, dbias, extra)


@_rule(
    "Attention",
    inputs="input weights bias mask_index past attention_bias",
    outputs="output present",
    wrt="input weights bias attention_bias",
)
def packed_attention(
    op, input, weights, bias, mask_index, past, attention_bias, doutput,
    *, need, num_heads, scale=0.0, unidirectional=0, mask_filter_value=-10000.0,
    qkv_hidden_sizes=None,
):  # fmt: skip
    """Q, K and V come from one product: input·weights + bias, cut into three."""
    _refuse_past(past)
    rows = op.Reshape(input, op.Concat([-1], op.dim(input, 2), axis=0))
    product = op.MatMul(input, weights)
    product = product if bias is None else op.Add(product, bias)
    if qkv_hidden_sizes:
        parts = op.Split(product, op.constant(list(qkv_hidden_sizes)), axis=2, outputs=3)
    else:
        parts = op.Split(product, axis=2, outputs=3)
    Q, K, V = (_heads(op, x, num_heads) for x in parts)
    mask = _masks(op, Q, K, mask_index, attention_bias, unidirectional, float(mask_filter_value))
    dO = _heads(op, doutput, num_heads)
    *parts, dS = _attention(op, Q, K, V, mask, dO, _scale(op, Q, scale))
    d = op.Concat(*[_joined(op, x) for x in parts], axis=2)
    flat = op.Reshape(d, op.Concat([-1], op.dim(weights, 1), axis=0))
    wanted = {"A": "input", "B": "weights"}
    dA, dB, _ = gemm_gradients(
        op, rows, weights, None, flat, 1.0, 1.0, 0, 0, [k for k, v in wanted.items() if v in need]
    )
    return {
        "input": op.reshape_like(dA, input),
        "weights": dB,
        "bias": op.ReduceSum(flat, [0], keepdims=0) if "bias" in need else None,
        "attention_bias": op.sum_to(dS, attention_bias) if "attention_bias" in need else None,
    }


@_rule(
    "RotaryEmbedding", inputs="input position_ids cos_cache sin_cache", outputs="output",
    wrt="input", stop="cos_cache sin_cache",
)  # fmt: skip
def rotary_embedding(op, position_ids, cos_cache, sin_cache, doutput, *, attrs):
    """A rotation of pairs is undone by the opposite angle."""
    back = op.Neg(sin_cache)
    inputs = (doutput, position_ids, cos_cache, back)
    return op("RotaryEmbedding", *inputs, domain="com.microsoft", **attrs)
