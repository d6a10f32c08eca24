"""Against PyTorch, continued: recurrent layers, attention, normalisations, picking and moving."""

import numpy as np
import pytest
from autodiff.harness import distinct, ints, normal, positive
from live import rows, test_rules
from live.rows import row

from onnxgrad.autodiff.rule import STANDARD

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.live

S, N, C, H = 4, 2, 3, 5  # steps, batch, input size, hidden size
_X = distinct(2, 4, 6, 5)
_MS = {"domain": "com.microsoft", "_opset": 17}

# ---- recurrent: ONNX stacks gates i o f c and z r h, PyTorch i f c o and r z h


def _blocks(w, order):
    parts = w.reshape(len(order), -1, *w.shape[1:])
    return parts[list(order)].reshape(w.shape)


def _weights(order, W, R, B):
    flat = []
    for d in range(W.shape[0]):
        half = B.shape[1] // 2
        flat += [_blocks(v, order) for v in (W[d], R[d], B[d, :half], B[d, half:])]
    return flat


def _joined(y, directions):
    """[S, N, D·H] -> [S, D, N, H]."""
    return y.reshape(S, N, directions, H).transpose(1, 2)


def _lstm(X, W, R, B, h, c):
    D = W.shape[0]
    flat = _weights((0, 2, 3, 1), W, R, B)
    return _joined(torch.lstm(X, (h, c), flat, True, 1, 0.0, True, D == 2, False)[0], D)


def _gru(X, W, R, B, h):
    D = W.shape[0]
    flat = _weights((1, 0, 2), W, R, B)
    return _joined(torch.gru(X, h, flat, True, 1, 0.0, True, D == 2, False)[0], D)


def _rnn(X, W, R, B, h):
    D = W.shape[0]
    return _joined(
        torch.rnn_tanh(X, h, _weights((0,), W, R, B), True, 1, 0.0, True, D == 2, False)[0], D
    )


def _recurrent(op, function, gates, directions, **rest):
    return row(
        op, function, _opset=17, X=normal(S, N, C), W=normal(directions, gates * H, C, scale=0.4),
        R=normal(directions, gates * H, H, scale=0.4), B=normal(directions, 2 * gates * H),
        initial_h=normal(directions, N, H), hidden_size=H,
        direction="bidirectional" if directions == 2 else "forward", **rest,
    )  # fmt: skip


RECURRENT = [
    case
    for d in (1, 2)
    for case in (
        _recurrent("LSTM", _lstm, 4, d, initial_c=normal(d, N, H, seed=1)),
        _recurrent("GRU", _gru, 3, d, linear_before_reset=1),
        _recurrent("RNN", _rnn, 1, d),
    )
]

# ---- attention

HEADS, SIZE = 2, 4


def _heads(x):
    return x.reshape(*x.shape[:2], HEADS, -1).transpose(1, 2)


def _merged(y):
    return y.transpose(1, 2).flatten(2)


def _multi_head(q, k, v, b=None):
    if b is not None:
        q, k, v = (x + part for x, part in zip((q, k, v), b.chunk(3), strict=True))
    return _merged(F.scaled_dot_product_attention(_heads(q), _heads(k), _heads(v)))


def _packed(x, w, b):
    return _multi_head(*(x @ w + b).chunk(3, -1))


def _rotary(x, cos, sin):
    """[batch, heads, sequence, size]; the halves of a head turn together."""
    a, b = x.chunk(2, -1)
    c, s = cos[:, None], sin[:, None]
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def _attention(function=F.scaled_dot_product_attention, **rest):
    shape = (2, HEADS, 3, SIZE)
    return row("Attention", function, _opset=23, Q=normal(*shape), K=normal(*shape, seed=1),
               V=normal(*shape, seed=2), **rest)  # fmt: skip


_SEQ = {"query": normal(2, 3, 8), "key": normal(2, 4, 8, seed=1), "value": normal(2, 4, 8, seed=2)}
ATTENTION = [
    _attention(),
    _attention(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), is_causal=1),
    _attention(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3), scale=0.3),
    row("RotaryEmbedding", _rotary, _opset=23, _dtype=np.float32, X=normal(2, HEADS, 3, SIZE),
        cos_cache=normal(2, 3, SIZE // 2), sin_cache=normal(2, 3, SIZE // 2, seed=1)),
    row("MultiHeadAttention", _multi_head, **_MS, **_SEQ, num_heads=HEADS),
    row("MultiHeadAttention", _multi_head, **_MS, **_SEQ, bias=normal(24), num_heads=HEADS),
    row("Attention", _packed, **_MS, input=normal(2, 3, 6), weights=normal(6, 24, scale=0.5),
        bias=normal(24), num_heads=HEADS),
]  # fmt: skip

# ---- normalisations, losses, activations


def _batch_norm(x, s, b, m, v):
    m, v, s, b = (t.reshape(-1, 1, 1) for t in (m, v, s, b))
    return (x - m) / torch.sqrt(v + 1e-5) * s + b


def _mvn(x):
    centred = x - x.mean((0, 2, 3), keepdim=True)
    return centred / (centred.pow(2).mean((0, 2, 3), keepdim=True).sqrt() + 1e-9)


def _skip(x, s, g, b, bias):
    return F.layer_norm(x + s + bias, (4,), g, b, 1e-5)


_STATISTICS = {"scale": normal(4), "B": normal(4, seed=1), "input_mean": normal(4, seed=2),
               "input_var": positive(4)}  # fmt: skip
_LABELS = np.array([[1, 0], [2, 3], [-1, 1]])
LAYERS = [
    row("BatchNormalization", _batch_norm, X=_X, **_STATISTICS),
    row("BatchNormalization", lambda x, s, b: F.batch_norm(x, None, None, s, b, True), X=_X, **_STATISTICS,
        wrt=("X", "scale", "B"), training_mode=1, outputs=3),
    row("LayerNormalization", lambda x, s, b: F.layer_norm(x, (5,), s, b), X=_X, Scale=normal(5),
        B=normal(5), _dtype=np.float32),  # its kernel is used for float
    row("MeanVarianceNormalization", _mvn, X=_X),
    row("LpNormalization", lambda x: F.normalize(x, dim=1), input=_X, axis=1),
    row("LpNormalization", lambda x: F.normalize(x, p=1, dim=-1), input=_X, p=1),
    row("SimplifiedLayerNormalization", lambda x, s: F.rms_norm(x, (4,), s, 1e-5), _opset=17,
        X=normal(2, 3, 4), scale=normal(4), axis=-1, epsilon=1e-5),
    row("SkipLayerNormalization", _skip, **_MS, input=normal(2, 3, 4), skip=normal(2, 3, 4, seed=1),
        gamma=normal(4), beta=normal(4, seed=1), bias=normal(4, seed=2), epsilon=1e-5),
    row("SkipSimplifiedLayerNormalization", lambda x, s, g: F.rms_norm(x + s, (4,), g, 1e-5), **_MS,
        input=normal(2, 3, 4), skip=normal(2, 3, 4, seed=1), gamma=normal(4), epsilon=1e-5),
    *[
        row("NegativeLogLikelihoodLoss",
            lambda x, r=reduction: F.nll_loss(x, torch.tensor(_LABELS), torch.arange(1.0, 5.0).double(),
                                              ignore_index=-1, reduction=r),
            input=normal(3, 4, 2), target=_LABELS, weight=np.arange(1.0, 5.0), ignore_index=-1,
            reduction=reduction, wrt=("input",))
        for reduction in ("mean", "sum", "none")
    ],
    row("GlobalAveragePool", lambda x: x.mean((2, 3), keepdim=True), X=_X),
    row("GlobalMaxPool", lambda x: x.amax((2, 3), keepdim=True), X=_X),
    row("GlobalLpPool", lambda x: (x.abs() ** 3).sum((2, 3), keepdim=True) ** (1 / 3), X=_X, p=3),
    row("HardSigmoid", F.hardsigmoid, X=2 * _X, alpha=1 / 6),
    row("ThresholdedRelu", lambda x: F.threshold(x, 0.33, 0.0), X=_X, alpha=0.33),
    row("Shrink", lambda x: F.softshrink(x, 0.43), input=_X, lambd=0.43, bias=0.43),
    row("Shrink", lambda x: F.hardshrink(x, 0.43), input=_X, lambd=0.43),
    row("Swish", F.silu, _opset=24, X=_X),
    row("Clip", torch.clamp, input=_X, min=np.array(-0.63), max=np.array(0.71)),
    row("Gelu", F.gelu, **_MS, X=_X),
    row("FastGelu", lambda x, b: F.gelu(x + b, approximate="tanh"), **_MS, X=_X, bias=normal(5)),
    row("BiasGelu", lambda a, b: F.gelu(a + b), **_MS, A=_X, B=normal(5)),
    row("QuickGelu", lambda x: x * torch.sigmoid(1.702 * x), **_MS, X=_X),
    row("FusedMatMul", lambda a, b: 0.5 * a @ b.mT, **_MS, A=normal(2, 3, 4), B=normal(2, 5, 4),
        alpha=0.5, transB=1),
    row("FusedGemm", lambda a, b, c: F.softplus(a @ b + c), **_MS, A=normal(3, 4), B=normal(4, 5),
        C=normal(5), activation="Softplus"),
    row("FusedConv", lambda x, w, b: torch.tanh(F.conv2d(x, w, b)), **_MS, X=_X, W=normal(3, 4, 3, 3, scale=0.3),
        B=normal(3), activation="Tanh"),
]  # fmt: skip

# ---- picking and moving

_INDEX = np.array([[0, 2], [3, -1]])
_ELEMENTS = np.array([[0, 2, 1], [3, 0, 0]])
_PLACES = np.array([[0, 1], [1, 3], [0, 1]])
_MATRIX = normal(4, 3)


def _t(array):
    return torch.tensor(array)


def _reverse(x):
    lengths = (2, 4, 1)
    columns = [torch.cat([x[:n, i].flip(0), x[n:, i]]) for i, n in enumerate(lengths)]
    return torch.stack(columns, 1)


def _space_to_depth(x, b=2):
    n, c, h, w = x.shape
    return (
        x.reshape(n, c, h // b, b, w // b, b)
        .permute(0, 3, 5, 1, 2, 4)
        .reshape(n, -1, h // b, w // b)
    )


def _unpool(x):
    flat = torch.zeros(32, dtype=x.dtype).index_put((_t(_POOLED.reshape(-1)),), x.reshape(-1))
    return flat.reshape(1, 2, 4, 4)


_POOLED = np.array([[[[0, 3], [10, 13]], [[18, 19], [24, 31]]]])
MOVES = [
    row("Identity", torch.clone, input=_MATRIX),
    row("Sum", lambda a, b, c: a + b + c, data_0=[_MATRIX, normal(3), normal(4, 1)]),
    row("Mean", lambda a, b: (a + b) / 2, data_0=[_MATRIX, normal(3)]),
    row("Mod", torch.fmod, A=distinct(3, 4), B=positive(4, low=0.3, high=0.7), fmod=1),
    row("ReduceLogSum", lambda x: x.sum(1).log(), data=positive(3, 4), axes=ints(1), keepdims=0),
    row("ReduceSumSquare", lambda x: (x**2).sum(1), data=_MATRIX, axes=ints(1), keepdims=0),
    row("Reshape", lambda x: x.reshape(2, 6), data=_MATRIX, shape=ints(2, -1)),
    row("Flatten", lambda x: x.reshape(8, 30), input=_X, axis=2),
    row("Squeeze", lambda x: x.squeeze(1), data=normal(2, 1, 3), axes=ints(1)),
    row("Unsqueeze", lambda x: x[:, None], data=_MATRIX, axes=ints(1)),
    row("Transpose", lambda x: x.permute(2, 0, 3, 1), data=_X, perm=[2, 0, 3, 1]),
    row("Concat", lambda a, b: torch.cat([a, b], 1), inputs=[_MATRIX, normal(4, 2)], axis=1),
    row("Split", lambda x: x[:, :1], input=_MATRIX, split=ints(1, 2), axis=1, outputs=2),
    row("Expand", lambda x: x.expand(2, 4, 3), input=normal(4, 1), shape=ints(2, 1, 3)),
    row("Tile", lambda x: x.repeat(2, 3), input=_MATRIX, repeats=ints(2, 3)),
    row("Trilu", lambda x: x.tril(1), input=_MATRIX, k=np.array(1), upper=0),
    row("Slice", lambda x: x[[3, 1]][:, 1:], data=_MATRIX, starts=ints(3, 1), ends=ints(0, 9), axes=ints(0, 1),
        steps=ints(-2, 1)),
    row("Compress", lambda x: x[[0, 2]], input=_MATRIX, condition=np.array([True, False, True]), axis=0),
    row("Gather", lambda x: x[_t(_INDEX)], data=_MATRIX, indices=_INDEX),
    row("GatherElements", lambda x: x.gather(0, _t(_ELEMENTS)), data=_MATRIX, indices=_ELEMENTS),
    row("GatherND", lambda x: x[_t(_PLACES[:, 0]), _t(_PLACES[:, 1])], data=_X[0], indices=_PLACES),
    row("ScatterElements", lambda x, u: x.scatter(1, _t(_ELEMENTS[:1]), u), data=normal(2, 4),
        indices=_ELEMENTS[:1], updates=normal(1, 3), axis=1),
    *[
        row("ScatterElements",
            lambda x, u, r=theirs: x.scatter_reduce(0, _t(_ELEMENTS), u, r), data=positive(4, 3),
            indices=_ELEMENTS, updates=positive(2, 3, seed=1), reduction=ours)
        for ours, theirs in (("add", "sum"), ("mul", "prod"), ("max", "amax"), ("min", "amin"))
    ],
    row("ScatterND", lambda x, u: x.index_put((_t(_PLACES[:2, 0]), _t(_PLACES[:2, 1])), u), data=normal(2, 4),
        indices=_PLACES[:2], updates=normal(2)),
    row("ScatterND", lambda x, u: x.index_put((_t(_PLACES[:, 0]), _t(_PLACES[:, 1])), u, accumulate=True),
        data=normal(2, 4), indices=_PLACES, updates=normal(3), reduction="add"),
    row("OneHot", lambda v: v[0] + (v[1] - v[0]) * F.one_hot(_t([0, 2, 1]), 3).T, indices=ints(0, 2, -2),
        depth=np.array(3), values=normal(2), axis=0),
    row("ReverseSequence", _reverse, input=normal(4, 3, 2), sequence_lens=ints(2, 4, 1)),
    row("SpaceToDepth", _space_to_depth, input=_X[:, :, :6, :4], blocksize=2),
    row("MaxUnpool", _unpool, _opset=16, X=normal(1, 2, 2, 2), I=_POOLED, kernel_shape=[2, 2], strides=[2, 2]),
    row("DFT", lambda x: torch.view_as_real(torch.fft.fft(torch.view_as_complex(x), dim=1)), _opset=20,
        input=normal(2, 5, 2), axis=np.array(1)),
]  # fmt: skip

CASES = RECURRENT + ATTENTION + LAYERS + MOVES

# Operators of onnxgrad, which stand in training graphs.
_HEADS = [normal(2, 3, 5, 4, seed=i) for i in range(3)]
OWN = [
    *[
        row("AttentionTraining", lambda q, k, v, c=causal: F.scaled_dot_product_attention(q, k, v, is_causal=c),
            Q=_HEADS[0], K=_HEADS[1], V=_HEADS[2], causal=int(causal), outputs=2, **_MS)
        for causal in (False, True)
    ],
    row("GeluTraining", F.gelu, X=_X, **_MS),
    row("GeluTraining", lambda x: F.gelu(x, approximate="tanh"), X=_X, form="tanh", **_MS),
    row("GeluTraining", F.silu, X=_X, form="sigmoid", **_MS),
    row("GeluTraining", F.hardswish, X=_X, form="hard", **_MS),
    row("GateTraining", lambda x: F.glu(x, 1), X=_X, form="linear", **_MS),
    row("LinearTraining", lambda x, w, b: x @ w + b, X=normal(2, 3, 4), W=normal(4, 5), B=normal(5), **_MS),
    row("LinearTraining", lambda x, w, b, a: x @ w + b + a, X=normal(2, 3, 4), W=normal(4, 5), B=normal(5),
        added=normal(2, 3, 5), **_MS),
    row("MaxPoolTraining", lambda x: F.max_pool2d(x, 2, 1), X=_X, kernel_shape=[2, 2], outputs=["f8", "i8"], **_MS),
    row("MaxPoolTraining", lambda x: F.max_pool2d(F.relu(x), 2), X=_X - 0.5, kernel_shape=[2, 2], strides=[2, 2],
        activation="relu", outputs=["f8", "i8"], **_MS),
    row("GroupNormalizationTraining", lambda x, s, b: F.group_norm(x, 2, s, b, 1e-3), X=_X, scale=positive(4),
        bias=normal(4), num_groups=2, epsilon=1e-3, **_MS),
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "function"), OWN, ids=[f"{i} {c.op}" for i, (c, _) in enumerate(OWN)]
)
def test_own_operators_against_torch(case, function):
    rows.compare_kernels(case, function)


@pytest.mark.parametrize(
    ("case", "function"), CASES, ids=[f"{i} {c.op}" for i, (c, _) in enumerate(CASES)]
)
def test_against_torch(case, function):
    rows.compare(case, function)


# What PyTorch does not have in this form, and where it is judged instead.
WITHOUT = {
    "Cast": "changes a type only", "CastLike": "changes a type only", "If": "control flow",
    "Loop": "control flow", "Scan": "control flow", "OptionalGetElement": "the identity",
    "Dropout": "random", "SeededDropout": "random", "DequantizeLinear": "tools/check_models.py",
    "QuantizeLinear": "straight through: tools/check_models.py", "RoiAlign": "in torchvision only",
    "MatMulNBits": "no such packing", "MatMulBnb4": "no such packing",
    "DynamicQuantizeMatMul": "rounds its input", "GroupQueryAttention": "tests/autodiff/rules/test_group_query.py",
    "FakeQuant": "tests/live/test_fake_quant.py", "MatMulNBitsCrossEntropy": "no such packing",
    "LinearCrossEntropy": "its matrix gets no gradient: tests/kernels/test_product_cross_entropy.py",
    "EmbedLayerNormalization": "tests/autodiff/rules/test_loss.py, and its parts here",
}  # fmt: skip


def test_every_rule_is_compared():
    """Rules of both domains by name; what is missing is listed with its reason."""
    compared = {case.op for case, _ in [*CASES, *OWN, *test_rules.CASES]}
    missing = {op for _, op in STANDARD} - compared - set(WITHOUT)
    assert not missing, f"no row for {sorted(missing)}"
    assert not compared & set(WITHOUT), "listed as missing, and compared"
