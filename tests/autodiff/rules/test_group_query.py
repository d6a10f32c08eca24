"""GroupQueryAttention against its formula in float64: outputs, and gradients along random directions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxgrad
from onnxgrad.errors import GradientError

B, S, H, HK, D = 2, 6, 4, 2, 32
STEP = 1e-30  # of a complex step: its square is nothing


def rotated(x, cos, sin, interleaved):
    """x [B, S, h, D]: pairs (a, b) -> (a·c - b·s, b·c + a·s); what the cache does not cover stays."""
    size = 2 * cos.shape[1]
    part, rest = x[..., :size], x[..., size:]
    c, s = (t[None, : x.shape[1], None, :] for t in (cos, sin))
    if interleaved:
        a, b = part[..., 0::2], part[..., 1::2]
        new = np.stack([a * c - b * s, b * c + a * s], -1).reshape(part.shape)
    else:
        a, b = np.split(part, 2, axis=-1)
        new = np.concatenate([a * c - b * s, b * c + a * s], -1)
    return np.concatenate([new, rest], -1)


def reference(tensors, attributes, seqlens):
    """The operator as it is defined, row by row."""
    query, key, value = tensors["query"], tensors.get("key"), tensors.get("value")
    if key is None:
        cuts = np.cumsum([H * D, HK * D])
        query, key, value = np.split(query, cuts, axis=2)
    q, k, v = (t.reshape(B, S, -1, D) for t in (query, key, value))
    if attributes.get("do_rotary"):
        turn = (tensors["cos_cache"], tensors["sin_cache"], attributes.get("rotary_interleaved", 0))
        q, k = rotated(q, *turn), rotated(k, *turn)
    scale = attributes.get("scale") or D**-0.5
    cap, window = attributes.get("softcap", 0.0), attributes.get("local_window_size", -1)
    out = np.zeros((B, S, H, D), np.result_type(*tensors.values()))
    for b in range(B):
        for h in range(H):
            for i in range(S):
                last = min(i + 1, seqlens[b] + 1) if attributes.get("causal", 1) else seqlens[b] + 1
                first = max(0, last - window) if window >= 0 else 0
                kv = h // (H // HK)
                scores = scale * (k[b, first:last, kv] @ q[b, i, h])
                if cap:
                    scores = cap * np.tanh(scores / cap)
                if "attention_bias" in tensors:
                    bias = tensors["attention_bias"]
                    scores = scores + bias[b % len(bias), h % bias.shape[1], i, first:last]
                high = scores.real.max()
                weights = np.exp(scores - high)
                total = weights.sum()
                if "head_sink" in tensors:
                    total = total + np.exp(tensors["head_sink"][h] - high)
                elif attributes.get("smooth_softmax"):
                    total = total + np.exp(-high)
                out[b, i, h] = (weights / total) @ v[b, first:last, kv]
    return out.reshape(B, S, H * D)


def slope(tensors, attributes, seqlens, dO, name, direction):
    """The derivative of Σ out·dO along a direction of one tensor, by a complex step."""
    moved = {**tensors, name: tensors[name] + 1j * STEP * direction}
    return (reference(moved, attributes, seqlens) * dO).sum().imag / STEP


INPUTS = [
    "query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length",
    "cos_cache", "sin_cache", "position_ids", "attention_bias", "head_sink",
]  # fmt: skip


def model(tensors, attributes, fixed) -> onnx.ModelProto:
    names = [n if n in tensors or n in fixed else "" for n in INPUTS]
    while not names[-1]:
        names.pop()
    node = helper.make_node(
        "GroupQueryAttention", names, ["output", "present_key", "present_value"],
        domain="com.microsoft", num_heads=H, kv_num_heads=HK, **attributes,
    )  # fmt: skip
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "gqa",
        [info(n, onnx.TensorProto.FLOAT, a.shape) for n, a in tensors.items()],
        [info("output", onnx.TensorProto.FLOAT, [B, S, H * D])],
        [numpy_helper.from_array(a, n) for n, a in fixed.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


VARIANTS = {
    "plain": {},
    "a scale of its own": {"scale": 0.4},
    "rotary": {"do_rotary": 1},
    "rotary, interleaved": {"do_rotary": 1, "rotary_interleaved": 1},
    "rotary of a part": {"do_rotary": 1, "part": True},
    "window": {"local_window_size": 3},
    "softcap": {"softcap": 0.7},
    "sink": {"sink": True},
    "smooth softmax": {"smooth_softmax": 1},
    "packed": {"packed": True},
    "packed, rotary, window, softcap": {
        "packed": True, "do_rotary": 1, "local_window_size": 2, "softcap": 1.5,
    },
    "bias": {"bias": True},
    "empty past": {"past": True, "do_rotary": 1},
}  # fmt: skip


def problem(title: str):
    """Tensors that get a gradient, attributes, and what is constant."""
    rng = np.random.default_rng(len(title))
    attributes = dict(VARIANTS[title])
    flags = {f for f in ("part", "sink", "packed", "bias", "past") if attributes.pop(f, False)}

    def draw(*shape):
        return (0.7 * rng.standard_normal(shape)).astype(np.float32)

    if "packed" in flags:
        tensors = {"query": draw(B, S, (H + 2 * HK) * D)}
    else:
        tensors = {
            "query": draw(B, S, H * D), "key": draw(B, S, HK * D), "value": draw(B, S, HK * D),
        }  # fmt: skip
    fixed = {
        "seqlens_k": np.array([S - 1, 3], np.int32),
        "total_sequence_length": np.array(S, np.int32),
    }
    if attributes.get("do_rotary"):
        angles = np.outer(np.arange(S + 2), 1 / 10 ** np.arange(D // (4 if "part" in flags else 2)))
        fixed["cos_cache"], fixed["sin_cache"] = (
            f(angles).astype(np.float32) for f in (np.cos, np.sin)
        )
    if "sink" in flags:
        tensors["head_sink"] = draw(H)
    if "bias" in flags:
        tensors["attention_bias"] = draw(1, H, S, S)
    if "past" in flags:
        fixed["past_key"] = fixed["past_value"] = np.zeros((B, HK, 0, D), np.float32)
    return tensors, attributes, fixed


@pytest.mark.parametrize("ops", ["fused", "standard"])
@pytest.mark.parametrize("title", VARIANTS)
def test_outputs_and_gradients_are_those_of_the_formula(title, ops):
    tensors, attributes, fixed = problem(title)
    seqlens = fixed["seqlens_k"]
    dO = np.random.default_rng(1).standard_normal((B, S, H * D))
    dO[1, seqlens[1] + 1 :] = 0  # rows of padding: no loss looks at them
    graph = onnxgrad.vjp(model(tensors, attributes, fixed), wrt=list(tensors), ops=ops)
    by_blocks = any(n.op_type == "AttentionGrad" for n in graph.graph.node)
    assert by_blocks == (
        ops == "fused" and not {"softcap", "sink", "smooth_softmax"} & {*VARIANTS[title]}
    )
    session = onnxgrad.session(graph)
    feeds = {**tensors, "output_grad": dO.astype(np.float32)}
    out, *gradients = session.run(None, feeds)
    wide = {n: a.astype(np.float64) for n, a in {**tensors, **fixed}.items()}
    expected = reference(wide, attributes, seqlens)
    rows = dO != 0
    np.testing.assert_allclose(np.where(rows, out, 0), np.where(rows, expected, 0), atol=2e-6)
    rng = np.random.default_rng(2)
    for name, got in zip(tensors, gradients, strict=True):
        assert np.isfinite(got).all()
        for _ in range(8):
            direction = rng.standard_normal(got.shape)
            exact = slope(wide, attributes, seqlens, dO, name, direction)
            allowed = 1e-5 * np.linalg.norm(got)  # what a random direction sees of an error of 1e-5
            assert abs((got * direction).sum() - exact) <= allowed, name


def test_a_past_of_unknown_length_is_refused():
    tensors, attributes, fixed = problem("plain")
    proto = model(
        tensors, attributes, {**fixed, "past_key": np.zeros(0), "past_value": np.zeros(0)}
    )
    past = [t for t in proto.graph.initializer if t.name.startswith("past")]
    for tensor in past:
        proto.graph.initializer.remove(tensor)
        proto.graph.input.append(
            helper.make_tensor_value_info(tensor.name, onnx.TensorProto.FLOAT, [B, HK, "P", D])
        )
    with pytest.raises(GradientError, match="reads past keys and values"):
        onnxgrad.vjp(proto, wrt=["query"])


@pytest.mark.parametrize("ops", ["fused", "standard"])
def test_heads_of_unknown_size_are_refused(ops):
    tensors, attributes, fixed = problem("plain")
    proto = model(tensors, attributes, fixed)
    for value in proto.graph.input:
        value.type.tensor_type.shape.dim[2].ClearField("dim_value")
    with pytest.raises(GradientError, match="has heads of unknown size"):
        onnxgrad.vjp(proto, wrt=["query"], ops=ops)
