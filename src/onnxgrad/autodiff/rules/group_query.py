"""GroupQueryAttention as decoders for onnxruntime have it: few heads of keys and values, each read by a group.

Heads of queries are laid out as [B, Hk, G·S, D], G = H/Hk: a group's rows then meet its keys in one product, and
the gradient of a key is summed over its group by the product itself. With Y = softcap(scale·Q·Kᵀ) + bias,
P = softmax(Y) over the keys that a row sees, with exp(sink) in the denominator, and O = P·V:

    dV = Pᵀ·dO,  dP = dO·Vᵀ,  dY = P·(dP - Σ P·dP),  dsink = -Σ p_sink·Σ P·dP,  p_sink = 1 - ΣP

Without a softcap and without a sink the kernels of attention do both ways block by block: no scores are kept.
"""

import math

from onnx_ir import DataType

from onnxgrad.autodiff.rule import NoGradient, fused, rule

_INPUTS = (
    "query key value past_key past_value seqlens_k total_sequence_length cos_cache sin_cache "
    "position_ids attention_bias head_sink k_scale v_scale q_norm_weight k_norm_weight"
)
_SIGNATURE = {
    "domain": "com.microsoft", "inputs": _INPUTS, "outputs": "output present_key present_value",
    "wrt": "query key value attention_bias head_sink", "stop": "cos_cache sin_cache past_key past_value",
}  # fmt: skip


@rule("GroupQueryAttention", **_SIGNATURE)
def group_query_attention(
    op, query, key, value, past_key, past_value, seqlens_k, cos_cache, sin_cache, position_ids,
    attention_bias, head_sink, k_scale, v_scale, q_norm_weight, k_norm_weight, doutput,
    *, need, num_heads, kv_num_heads, scale=0.0, softcap=0.0, do_rotary=0, rotary_interleaved=0,
    local_window_size=-1, smooth_softmax=0, causal=1,
):  # fmt: skip
    """A prompt of its own, without past: every row sees the keys up to itself that are not padding."""
    _refuse(op, past_key, past_value, (k_scale, v_scale, q_norm_weight, k_norm_weight))
    groups = num_heads // kv_num_heads
    Q, K, V = _parts(op, query, key, value, num_heads, kv_num_heads)
    turn = _turner(op, cos_cache, sin_cache, position_ids, rotary_interleaved, do_rotary)
    Q, K = turn(Q, num_heads, 1), turn(K, kv_num_heads, 1)
    q, k, v = _grouped(op, Q, kv_num_heads, groups), *(_heads(op, x, kv_num_heads) for x in (K, V))
    dO = _grouped(op, doutput, kv_num_heads, groups)
    size = op.dims(q)[3]
    factor = float(scale) or 1 / math.sqrt(size)
    raw = op.Mul(op.MatMul(q, op.Transpose(k, perm=[0, 1, 3, 2])), factor)
    capped = op.Tanh(op.Div(raw, float(softcap))) if softcap else None
    scores = _by_row(op, raw if capped is None else op.Mul(capped, float(softcap)), k, groups)
    if attention_bias is not None:
        scores = op.Add(scores, _bias(op, attention_bias, kv_num_heads, groups))
    seen = _seen(op, op.dim(scores, 3), seqlens_k, local_window_size, causal)
    masked = op.Where(seen, scores, float("-inf"))
    P, p_sink = _softmax(op, masked, head_sink, kv_num_heads, groups, smooth_softmax)
    dP = _by_row(op, op.MatMul(dO, op.Transpose(v, perm=[0, 1, 3, 2])), k, groups)
    dot = op.ReduceSum(op.Mul(P, dP), [4], keepdims=1)
    dY = op.Mul(P, op.Sub(dP, dot))
    p, ds = (_by_group(op, x, q) for x in (P, dY))
    dV = op.MatMul(op.Transpose(p, perm=[0, 1, 3, 2]), dO)
    if capped is not None:
        ds = op.Mul(ds, op.Sub(1.0, op.Mul(capped, capped)))
    ds = op.Mul(ds, factor)
    dQ = turn(_ungrouped(op, op.MatMul(ds, k), groups, num_heads), num_heads, -1)
    dK = op.MatMul(op.Transpose(ds, perm=[0, 1, 3, 2]), q)
    dK, dV = turn(_joined(op, dK), kv_num_heads, -1), _joined(op, dV)
    packed = key is None
    return {
        "query": op.Concat(dQ, dK, dV, axis=2) if packed else dQ,
        "key": None if packed else dK,
        "value": None if packed else dV,
        "attention_bias": _bias_gradient(op, dY, attention_bias)
        if "attention_bias" in need
        else None,
        "head_sink": _sink_gradient(op, p_sink, dot, head_sink) if "head_sink" in need else None,
    }


@fused("GroupQueryAttention", **_SIGNATURE)
def group_query_attention_by_blocks(
    op, query, key, value, past_key, past_value, seqlens_k, cos_cache, sin_cache, position_ids,
    attention_bias, head_sink, k_scale, v_scale, q_norm_weight, k_norm_weight, output, doutput,
    *, need, num_heads, kv_num_heads, scale=0.0, softcap=0.0, do_rotary=0, rotary_interleaved=0,
    local_window_size=-1, smooth_softmax=0, causal=1,
):  # fmt: skip
    """Heads are read where they lie, [B, S, h, D]; the kernel takes the node's place on the way forward, too."""
    _refuse(op, past_key, past_value, (k_scale, v_scale, q_norm_weight, k_norm_weight))
    if softcap or smooth_softmax or head_sink is not None:
        return NotImplemented
    Q, K, V = _parts(op, query, key, value, num_heads, kv_num_heads)
    turn = _turner(op, cos_cache, sin_cache, position_ids, rotary_interleaved, do_rotary)
    parts = (
        (turn(Q, num_heads, 1), num_heads),
        (turn(K, kv_num_heads, 1), kv_num_heads),
        (V, kv_num_heads),
    )
    q, k, v = (op.Reshape(x, [0, 0, heads, _size(op, x, heads)]) for x, heads in parts)
    mask = _added(op, q, seqlens_k, local_window_size, causal)
    mask = mask if attention_bias is None else op.Add(attention_bias, mask)
    settings = {"layout": "tokens", "causal": int(causal), "scale": float(scale)}
    Y, LSE = op.AttentionTraining(q, k, v, mask, **settings, outputs=2)
    op.instead(output, op.Reshape(Y, [0, 0, -1]))
    dY = op.Reshape(doutput, [0, 0, num_heads, -1])
    flags = [True, True, True, "attention_bias" in need]
    *parts, dmask = op.AttentionGrad(dY, Y, LSE, q, k, v, mask, **settings, outputs=flags)
    dQ, dK, dV = (op.reshape_like(d, x) for d, x in zip(parts, (Q, K, V), strict=True))
    dQ, dK = turn(dQ, num_heads, -1), turn(dK, kv_num_heads, -1)
    packed = key is None
    return {
        "query": op.Concat(dQ, dK, dV, axis=2) if packed else dQ,
        "key": None if packed else dK,
        "value": None if packed else dV,
        "attention_bias": None if dmask is None else op.sum_to(dmask, attention_bias),
    }


def _added(op, q, seqlens_k, window, causal):
    """What is added to the scores, 0 or -inf: [B, 1, 1, T] for padding; with a window [B, 1, S, T]."""
    if window >= 0:
        seen = op.Squeeze(_seen(op, op.dim(q, 1), seqlens_k, window, causal), [1])
    else:
        columns = op.Unsqueeze(op.range(op.dim(q, 1)), [0, 1, 2])
        last = op.Cast(op.Reshape(seqlens_k, [-1, 1, 1, 1]), to=DataType.INT64)
        seen = op.LessOrEqual(columns, last)
    zero, far = (op.constant(x, op.dtype(q)) for x in (0.0, float("-inf")))
    return op.Where(seen, zero, far)


def _refuse(op, past_key, past_value, quantised):
    for past in (past_key, past_value):
        dims = None if past is None else op.dims(past)
        if past is not None and (dims is None or len(dims) != 4 or dims[2] != 0):
            raise NoGradient("reads past keys and values", "train without a cache")
    if any(x is not None for x in quantised):
        raise NoGradient("quantises or normalises keys itself", "export the model without that")


def _parts(op, query, key, value, heads, kv_heads):
    """Q [B, S, H·D], K and V [B, S, Hk·D]; packed they come in one, in this order."""
    if key is not None:
        return query, key, value
    hidden = op.dims(query)[2]
    if not isinstance(hidden, int):
        raise NoGradient("has packed heads of unknown size", "give the hidden size in the model")
    size = hidden // (heads + 2 * kv_heads)
    sizes = op.constant([heads * size, kv_heads * size, kv_heads * size])
    return op.Split(query, sizes, axis=2, outputs=3)


def _turner(op, cos, sin, position_ids, interleaved, do_rotary):
    """Rotary embedding of [B, S, h·D] by positions from 0 on; with direction -1 it is undone."""

    def turn(x, heads, direction):
        if not do_rotary:
            return x
        # Of a prompt's own positions the operator reads the first only.
        start = op.constant([0]) if position_ids is None else op.Reshape(position_ids, [-1])
        start = op.Slice(start, [0], [1], [0])
        rotated, size = op.dims(cos)[1], op.dims(x)[2]
        partial = {}
        if isinstance(rotated, int) and isinstance(size, int) and 2 * rotated < size // heads:
            partial = {"rotary_embedding_dim": 2 * rotated}
        back = sin if direction > 0 else op.Neg(sin)
        turned = op(
            "RotaryEmbedding", x, start, cos, back, domain="com.microsoft",
            interleaved=int(interleaved), num_heads=heads, **partial,
        )  # fmt: skip
        turned.dtype, turned.shape = op.dtype(x), x.shape
        return turned

    return turn


def _heads(op, x, heads):
    """[B, S, h·D] -> [B, h, S, D]."""
    return op.Transpose(op.Reshape(x, [0, 0, heads, _size(op, x, heads)]), perm=[0, 2, 1, 3])


def _size(op, x, heads):
    hidden = op.dims(x)[2]
    if not isinstance(hidden, int):
        raise NoGradient("has heads of unknown size", "give the hidden size in the model")
    return hidden // heads


def _grouped(op, x, kv_heads, groups):
    """[B, S, H·D] -> [B, Hk, G·S, D]."""
    size = _size(op, x, kv_heads * groups)
    return op.Reshape(_heads(op, x, kv_heads * groups), [0, kv_heads, -1, size])


def _ungrouped(op, x, groups, heads):
    """[B, Hk, G·S, D] -> [B, S, H·D]."""
    return _joined(op, op.Reshape(x, op.constant([0, heads, -1, op.dims(x)[3]])))


def _joined(op, x):
    """[B, h, S, D] -> [B, S, h·D]."""
    _, heads, _, size = op.dims(x)
    return op.Reshape(op.Transpose(x, perm=[0, 2, 1, 3]), [0, 0, heads * size])


def _by_row(op, x, k, groups):
    """[B, Hk, G·S, T] -> [B, Hk, G, S, T]; S and T are equal, for there is no past."""
    shape = op.Concat([0, 0, groups], op.dim(k, 2), op.dim(k, 2), axis=0)
    return op.Reshape(x, shape)


def _by_group(op, x, q):
    """[B, Hk, G, S, T] -> [B, Hk, G·S, T]."""
    return op.Reshape(x, op.Concat([0, 0], op.dim(q, 2), op.dim(x, 4), axis=0))


def _bias(op, bias, kv_heads, groups):
    """[B|1, H|1, S, T] -> [B|1, Hk|1, G|1, S, T]."""
    heads = op.dims(bias)[1]
    if heads == 1:
        return op.Unsqueeze(bias, [2])
    shape = op.Concat(op.dim(bias, 0), [kv_heads, groups], op.dim(bias, 2), op.dim(bias, 3), axis=0)
    return op.Reshape(bias, shape)


def _bias_gradient(op, dY, bias):
    """The adjoint of `_bias` and of the broadcast."""
    if op.dims(bias)[1] == 1:
        return op.sum_to(op.ReduceSum(dY, [2], keepdims=0), bias)
    batch, rows, keys = op.dim(dY, 0), op.dim(dY, 3), op.dim(dY, 4)
    shape = op.Concat(batch, op.dim(bias, 1), rows, keys, axis=0)
    return op.sum_to(op.Reshape(dY, shape), bias)


def _seen(op, length, seqlens_k, window, causal):
    """[B, 1, 1, S, T]: row i sees keys [max(0, v - w), v), v = min(i + 1, seqlens_k + 1)."""
    columns = op.Unsqueeze(op.range(length), [0, 1, 2, 3])
    valid = op.Add(op.Cast(op.Reshape(seqlens_k, [-1, 1, 1, 1, 1]), to=DataType.INT64), [1])
    if causal:
        rows = op.Unsqueeze(op.Add(op.range(length), [1]), [0, 1, 2, 4])
        valid = op.Min(rows, valid)
    seen = op.Less(columns, valid)
    if window >= 0:
        seen = op.And(seen, op.GreaterOrEqual(columns, op.Sub(valid, [int(window)])))
    return seen


def _softmax(op, masked, sink, kv_heads, groups, smooth):
    """P over the keys, and the share of the sink, [B, Hk, G, S, 1]; None without a sink."""
    if sink is None and not smooth:
        return op.Softmax(masked, axis=-1), None
    column = (
        op.constant(0.0, op.dtype(masked))
        if sink is None
        else op.Reshape(sink, [1, kv_heads, groups, 1, 1])
    )
    ones = op.constant([1])
    shape = op.Concat(*(op.dim(masked, i) for i in range(4)), ones, axis=0)
    whole = op.Softmax(op.Concat(masked, op.Expand(column, shape), axis=4), axis=-1)
    keys = op.dim(masked, 4)
    P = op.Slice(whole, [0], keys, [4])
    return P, op.Slice(whole, keys, op.Add(keys, [1]), [4])


def _sink_gradient(op, p_sink, dot, sink):
    """dsink of each head: -Σ p_sink·(Σ P·dP)."""
    summed = op.ReduceSum(op.Mul(p_sink, dot), [0, 3, 4], keepdims=0)
    return op.reshape_like(op.Neg(summed), sink)
