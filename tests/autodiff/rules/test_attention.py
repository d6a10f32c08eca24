"""Attention and rotary embeddings: ONNX's own, which are inlined, and onnxruntime's."""

import numpy as np
from autodiff.harness import RuleCase, check, normal, positive, table

_FLOAT = {"dtype": np.float32, "rtol": 5e-3, "why": "there is none for double"}
B, H, S, T, D = 2, 2, 3, 4, 4  # batch, heads, queries, keys, size of a head


def _attention(what, q=(B, H, S, D), kv=(B, H, T, D), **rest):
    given = {"K": normal(*kv, seed=1), "V": normal(*kv, seed=2)} | rest
    return RuleCase("Attention", what, Q=normal(*q), opsets=(23,), **given)


ONNX = [
    _attention("4-D"),
    _attention("causal", is_causal=1, kv=(B, H, S, D)),
    _attention("a scale", scale=0.3),
    _attention("soft cap", softcap=2.0),
    _attention("a bias", attn_mask=normal(S, T)),
    _attention("a mask", attn_mask=np.array([[True, False, True, True]] * S)),
    _attention("3-D", q=(B, S, H * D), kv=(B, T, H * D), q_num_heads=H, kv_num_heads=H,
               shapes=("static",)),  # ONNX infers a size of 0 for dynamic ones
    _attention("grouped queries", q=(B, 2 * H, S, D)),
    RuleCase("RotaryEmbedding", "4-D", X=normal(B, H, S, D), cos_cache=normal(B, S, D // 2),
         sin_cache=normal(B, S, D // 2, seed=1), opsets=(23,), **_FLOAT),
    RuleCase("RotaryEmbedding", "3-D, interleaved", X=normal(B, S, H * D), num_heads=H, interleaved=1,
         cos_cache=normal(5, D // 2), sin_cache=normal(5, D // 2, seed=1),
         position_ids=np.array([[0, 2, 4], [1, 1, 3]]), opsets=(23,), **_FLOAT),
    RuleCase("RotaryEmbedding", "a part", X=normal(B, H, S, D), cos_cache=normal(B, S, 1),
         sin_cache=normal(B, S, 1, seed=1), rotary_embedding_dim=2, opsets=(23,), **_FLOAT),
]  # fmt: skip


_SQUARE = np.array([[[1, 1, 0, 1], [1, 0, 0, 1], [0, 1, 1, 0], [1, 1, 1, 1]]] * 2, np.int32)
_MASK = np.array([[1, 1, 0, 1], [1, 1, 1, 0]], np.int32)


def _contrib(op, what, *, outputs=(np.float64,), **rest):
    return RuleCase(op, what, domain="com.microsoft", outputs=list(outputs), opsets=(17,), **rest)


def _multi_head(what, keys=T, **rest):
    given = {"query": normal(B, S, H * D), "key": normal(B, keys, H * D, seed=1),
             "value": normal(B, keys, H * D, seed=2), "bias": None, "key_padding_mask": None,
             "attention_bias": None} | rest  # fmt: skip
    return _contrib("MultiHeadAttention", what, num_heads=H, **given)


def _packed(what, sequence=T, **rest):
    given = {"input": normal(B, sequence, 6), "weights": normal(6, 3 * H * D, scale=0.5),
             "bias": normal(3 * H * D), "mask_index": None, "past": None,
             "attention_bias": None} | rest  # fmt: skip
    return _contrib("Attention", what, num_heads=H, **given)


_PACKED_WEIGHTS = np.random.default_rng(0).integers(0, 256, (3, 2, 8)).astype(np.uint8)

CONTRIB = [
    _multi_head("plain"),
    _multi_head("bias and scale", bias=normal(3 * H * D), scale=0.3),
    _multi_head("masked keys", key_padding_mask=_MASK),
    _multi_head("attention bias", attention_bias=normal(1, H, S, T)),
    _multi_head("causal", keys=S, unidirectional=1),
    _packed("plain"),
    _packed("masked keys", mask_index=_MASK),
    _packed("lengths of keys", mask_index=np.array([4, 2], np.int32)),
    _packed("lengths and starts of keys", mask_index=np.array([4, 3, 1, 0], np.int32)),
    _packed("lengths of keys in a packed batch", mask_index=np.array([4, 2, 0, 4, 6, 0, 4, 6], np.int32)),
    _packed("a mask for every query", mask_index=_SQUARE),
    _packed("causal", unidirectional=1),
    _contrib("RotaryEmbedding", "plain", input=normal(B, S, H * D), wrt=("input",),
             position_ids=np.array([[0, 2, 4], [1, 1, 3]]), cos_cache=normal(5, D // 2),
             sin_cache=normal(5, D // 2, seed=1)),
    _contrib("MatMulNBits", "4 bits", A=normal(2, 30), B=_PACKED_WEIGHTS, scales=positive(6),
             K=30, N=3, bits=4, block_size=16, wrt=("A",), outputs=(np.float32,), **_FLOAT),
    _contrib("MatMulNBits", "zero points", A=normal(2, 2, 32), B=_PACKED_WEIGHTS, wrt=("A",),
             scales=positive(6), zero_points=np.array([0x35, 0x71, 0x8F], np.uint8), K=32, N=3,
             bits=4, block_size=16, outputs=(np.float32,), **_FLOAT),
    *[
        _contrib("FusedMatMul", what, A=normal(*a), B=normal(*b), alpha=0.5, **rest)
        for what, a, b, rest in [
            ("batch axes of A", (4, 2, 3), (2, 3, 5), {"transBatchA": 1}),
            ("batch axes of both, transposed", (4, 2, 3), (5, 2, 4),
             {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1}),
        ]
    ],
    *[
        _contrib("FusedGemm", activation, A=normal(2, 3), B=normal(3, 4), C=normal(4),
                 activation=activation, activation_alpha=alpha)
        for activation, alpha in [("Elu", 0.7), ("Softplus", 0.0), ("Softsign", 0.0),
                                  ("LeakyRelu", 0.2), ("Sigmoid", 0.0), ("Tanh", 0.0)]
    ],
    _contrib("FusedConv", "HardSigmoid", X=normal(1, 2, 4, 4), W=normal(3, 2, 3, 3, scale=0.1),
             B=normal(3, scale=0.5), activation="HardSigmoid", activation_params=[0.2, 0.5]),
]  # fmt: skip


@table(CONTRIB)
def test_contrib(case, opset, shapes):
    check(case, opset, shapes, "standard")


@table(ONNX)
def test_inlined(case, opset, shapes):
    check(case, opset, shapes, "standard")
