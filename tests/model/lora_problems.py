"""Small models to adapt, with the module names that people know; peft's answers are in tests/golden/lora.

Weights and batches come from NumPy's generator with fixed seeds, so that both sides see the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from train.problems import FLOAT, INT64, make_model, node, rng_for

STEPS, D, HEADS, VOCABULARY, LENGTH, CLASSES = 100, 16, 2, 11, 7, 3


@dataclass
class Adapted:
    """A model, its weights as PyTorch keeps them ([out, in]), a batch for every step, and what is adapted."""

    weights: dict[str, np.ndarray]
    batches: list[tuple[np.ndarray, np.ndarray]]
    build: Callable[[dict[str, np.ndarray]], onnx.ModelProto]
    lora: dict = field(default_factory=lambda: {"r": 4, "alpha": 6})
    peft: dict = field(default_factory=dict)  # what peft calls the same targets
    lr: float = 1e-2

    def model(self) -> onnx.ModelProto:
        return self.build(self.weights)


def dense(rng: np.random.Generator, *shape: int) -> np.ndarray:
    fan_in = np.prod(shape[1:])
    return (rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)


def norm_weights(name: str) -> dict[str, np.ndarray]:
    return {f"{name}.weight": np.ones(D, np.float32), f"{name}.bias": np.zeros(D, np.float32)}


def linear_weights(rng, name: str, fan_in: int, fan_out: int) -> dict[str, np.ndarray]:
    bias = (0.1 * rng.standard_normal(fan_out)).astype(np.float32)
    return {f"{name}.weight": dense(rng, fan_out, fan_in), f"{name}.bias": bias}


def embedding_weights(rng) -> dict[str, np.ndarray]:
    return {
        "embeddings.word.weight": rng.standard_normal((VOCABULARY, D)).astype(np.float32),
        "embeddings.position.weight": (0.1 * rng.standard_normal((LENGTH, D))).astype(np.float32),
    }


# ---- nodes


def linear(name: str, x: str, y: str) -> list[onnx.NodeProto]:
    return [
        node("MatMul", [x, f"{name}.weight"], [f"{y}/product"], name=f"/{name}/MatMul"),
        node("Add", [f"{y}/product", f"{name}.bias"], [y]),
    ]


def layer_norm(name: str, x: str, y: str) -> onnx.NodeProto:
    return node("LayerNormalization", [x, f"{name}.weight", f"{name}.bias"], [y], epsilon=1e-5)


def gelu(x: str, y: str) -> list[onnx.NodeProto]:
    return [
        node("Div", [x, "sqrt2"], [f"{y}/0"]), node("Erf", [f"{y}/0"], [f"{y}/1"]),
        node("Add", [f"{y}/1", "one"], [f"{y}/2"]), node("Mul", [x, f"{y}/2"], [f"{y}/3"]),
        node("Mul", [f"{y}/3", "half"], [y]),
    ]  # fmt: skip


def attend(s: str, y: str, mask: str | None = None) -> list[onnx.NodeProto]:
    """Attention over {s}q, {s}k, {s}v."""
    scores = [node("Add", [f"{s}/scaled", mask], [f"{s}/masked"])] if mask else []
    return [
        *(node("Reshape", [f"{s}{n}", "heads"], [f"{s}{n}1"]) for n in "qkv"),
        *(node("Transpose", [f"{s}{n}1"], [f"{s}{n}2"], perm=[0, 2, 1, 3]) for n in "qv"),
        node("Transpose", [f"{s}k1"], [f"{s}k2"], perm=[0, 2, 3, 1]),
        node("MatMul", [f"{s}q2", f"{s}k2"], [f"{s}/scores"]),
        node("Mul", [f"{s}/scores", "scale"], [f"{s}/scaled"]),
        *scores,
        node("Softmax", [f"{s}/masked" if mask else f"{s}/scaled"], [f"{s}/p"], axis=-1),
        node("MatMul", [f"{s}/p", f"{s}v2"], [f"{s}/mixed"]),
        node("Transpose", [f"{s}/mixed"], [f"{s}/turned"], perm=[0, 2, 1, 3]),
        node("Reshape", [f"{s}/turned", "joined"], [y]),
    ]


CONSTANTS = {
    "heads": np.array([0, 0, HEADS, D // HEADS]), "joined": np.array([0, 0, D]),
    "scale": np.array((D // HEADS) ** -0.5, np.float32), "sqrt2": np.array(2**0.5, np.float32),
    "one": np.array(1, np.float32), "half": np.array(0.5, np.float32),
}  # fmt: skip


def embedded() -> list[onnx.NodeProto]:
    return [
        node("Gather", ["embeddings.word.weight", "x"], ["tokens"], name="/embeddings/word/Gather"),
        node("Add", ["tokens", "embeddings.position.weight"], ["e"]),
    ]


def transposed(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Matrices of products as ONNX keeps them; tables, norms and the Gemm of the head stay."""
    keep = ("embeddings", "classifier", "conv")
    return {
        n: np.ascontiguousarray(a.T) if a.ndim == 2 and not n.startswith(keep) else a
        for n, a in weights.items()
    }


# ---- a BERT-like encoder that classifies


def encoder_layers() -> list[str]:
    return [f"encoder.layer.{i}" for i in range(2)]


def encoder() -> Adapted:
    rng = rng_for("lora encoder")
    weights = embedding_weights(rng)
    for s in encoder_layers():
        for name in ("query", "key", "value", "dense"):
            weights |= linear_weights(rng, f"{s}.attention.{name}", D, D)
        weights |= norm_weights(f"{s}.norm1") | norm_weights(f"{s}.norm2")
        weights |= linear_weights(rng, f"{s}.intermediate", D, 2 * D)
        weights |= linear_weights(rng, f"{s}.output", 2 * D, D)
    weights |= linear_weights(rng, "classifier", D, CLASSES)
    batches = []
    for _ in range(STEPS):
        x = rng.integers(0, VOCABULARY, (8, LENGTH))
        batches.append((x, x.sum(1) % CLASSES))
    return Adapted(weights, batches, encoder_model)


def encoder_model(weights: dict) -> onnx.ModelProto:
    nodes, x = embedded(), "e"
    for s in encoder_layers():
        for short, name in zip("qkv", ("query", "key", "value"), strict=True):
            nodes += linear(f"{s}.attention.{name}", x, f"{s}{short}")
        nodes += attend(s, f"{s}/context")
        nodes += linear(f"{s}.attention.dense", f"{s}/context", f"{s}/attended")
        nodes += [
            node("Add", [x, f"{s}/attended"], [f"{s}/r1"]),
            layer_norm(f"{s}.norm1", f"{s}/r1", f"{s}/n1"),
        ]
        nodes += linear(f"{s}.intermediate", f"{s}/n1", f"{s}/wide")
        nodes += gelu(f"{s}/wide", f"{s}/active")
        nodes += linear(f"{s}.output", f"{s}/active", f"{s}/back")
        nodes += [
            node("Add", [f"{s}/n1", f"{s}/back"], [f"{s}/r2"]),
            layer_norm(f"{s}.norm2", f"{s}/r2", f"{s}/n2"),
        ]
        x = f"{s}/n2"
    nodes += [
        node("ReduceMean", [x], ["pooled"], axes=[1], keepdims=0),
        node("Gemm", ["pooled", "classifier.weight", "classifier.bias"], ["logits"], transB=1),
    ]
    inputs, outputs = [("x", INT64, ["N", LENGTH])], [("logits", FLOAT, ["N", CLASSES])]
    return make_model(nodes, inputs, outputs, {**transposed(weights), **CONSTANTS})


# ---- a GPT-2-like decoder whose head is its table of tokens


def decoder_layers() -> list[str]:
    return [f"h.{i}" for i in range(2)]


def decoder() -> Adapted:
    rng = rng_for("lora decoder")
    weights = embedding_weights(rng)
    # The table is the head as well: with larger numbers the logits begin so large that 100 steps of
    # float32 and float64 part for want of digits.
    weights["embeddings.word.weight"] *= np.float32(0.3)
    for s in decoder_layers():
        weights |= norm_weights(f"{s}.ln_1") | norm_weights(f"{s}.ln_2")
        weights |= linear_weights(rng, f"{s}.attn.c_attn", D, 3 * D)
        weights |= linear_weights(rng, f"{s}.attn.c_proj", D, D)
        weights |= linear_weights(rng, f"{s}.mlp.c_fc", D, 2 * D)
        weights |= linear_weights(rng, f"{s}.mlp.c_proj", 2 * D, D)
    weights |= norm_weights("ln_f")
    batches = []
    for _ in range(STEPS):
        x = rng.integers(0, VOCABULARY, (6, LENGTH))
        batches.append((x, (x + np.roll(x, 1, axis=1)) % VOCABULARY))
    return Adapted(weights, batches, decoder_model, lr=3e-3)


def decoder_model(weights: dict) -> onnx.ModelProto:
    nodes, x = embedded(), "e"
    for s in decoder_layers():
        nodes.append(layer_norm(f"{s}.ln_1", x, f"{s}/n1"))
        nodes += linear(f"{s}.attn.c_attn", f"{s}/n1", f"{s}/packed")
        nodes.append(node("Split", [f"{s}/packed"], [f"{s}{n}" for n in "qkv"], axis=2))
        nodes += attend(s, f"{s}/context", "mask")
        nodes += linear(f"{s}.attn.c_proj", f"{s}/context", f"{s}/attended")
        nodes.append(node("Add", [x, f"{s}/attended"], [f"{s}/r1"]))
        nodes.append(layer_norm(f"{s}.ln_2", f"{s}/r1", f"{s}/n2"))
        nodes += linear(f"{s}.mlp.c_fc", f"{s}/n2", f"{s}/wide")
        nodes += gelu(f"{s}/wide", f"{s}/active")
        nodes += linear(f"{s}.mlp.c_proj", f"{s}/active", f"{s}/back")
        nodes.append(node("Add", [f"{s}/r1", f"{s}/back"], [f"{s}/r2"]))
        x = f"{s}/r2"
    nodes += [
        layer_norm("ln_f", x, "final"),
        node("Transpose", ["embeddings.word.weight"], ["head"], perm=[1, 0]),
        node("MatMul", ["final", "head"], ["logits"], name="/lm_head/MatMul"),
    ]
    mask = np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1)
    inputs = [("x", INT64, ["N", LENGTH])]
    outputs = [("logits", FLOAT, ["N", LENGTH, VOCABULARY])]
    constants = {**CONSTANTS, "mask": mask}
    return make_model(nodes, inputs, outputs, {**transposed(weights), **constants})


# ---- a small CNN


def cnn() -> Adapted:
    rng = rng_for("lora cnn")
    weights = {
        "conv1.weight": dense(rng, 8, 2, 3, 3), "conv1.bias": dense(rng, 8, 1)[:, 0],
        "conv2.weight": dense(rng, 12, 8, 1, 1), "conv2.bias": dense(rng, 12, 1)[:, 0],
        **linear_weights(rng, "classifier", 12, CLASSES),
    }  # fmt: skip
    batches = []
    for _ in range(STEPS):
        y = rng.integers(0, CLASSES, 8)
        x = rng.standard_normal((8, 2, 8, 8)).astype(np.float32)
        x[np.arange(8), y % 2, 2 + y] += 2
        batches.append((x, y))
    return Adapted(weights, batches, cnn_model)


def cnn_model(weights: dict) -> onnx.ModelProto:
    nodes = [
        node(
            "Conv", ["x", "conv1.weight", "conv1.bias"], ["c1"], kernel_shape=[3, 3],
            pads=[1] * 4, strides=[2, 2],
        ),
        node("Relu", ["c1"], ["a1"]),
        node("Conv", ["a1", "conv2.weight", "conv2.bias"], ["c2"], kernel_shape=[1, 1]),
        node("Relu", ["c2"], ["a2"]),
        node("GlobalAveragePool", ["a2"], ["pooled"]),
        node("Flatten", ["pooled"], ["flat"]),
        node("Gemm", ["flat", "classifier.weight", "classifier.bias"], ["logits"], transB=1),
    ]  # fmt: skip
    inputs, outputs = [("x", FLOAT, ["N", 2, 8, 8])], [("logits", FLOAT, ["N", CLASSES])]
    return make_model(nodes, inputs, outputs, weights)


MODELS: dict[str, Callable[[], Adapted]] = {"encoder": encoder, "decoder": decoder, "cnn": cnn}
# model, targets of ours, target_modules of peft
TARGETS = {
    "encoder": ((), ["query", "value"]),
    "decoder": ((), ["c_attn"]),
    "cnn": (("conv1", "conv2", "classifier"), ["conv1", "conv2", "classifier"]),
    "encoder and table": (("word", "query"), ["word", "query"]),
}
VARIANTS = ("lora", "rslora", "dora")
