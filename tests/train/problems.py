"""Small problems for training: weights, batches, the ONNX model. PyTorch's answers are in tests/golden/train.

Everything is drawn from NumPy's generator with a fixed seed, so that both sides see the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
STEPS = 50


@dataclass
class Problem:
    """A model with its weights, a batch for every step, and how it is trained."""

    name: str
    weights: dict[str, np.ndarray]
    batches: list[tuple[np.ndarray, np.ndarray]]
    build: Callable[[dict], onnx.ModelProto]
    optimizer: str = "adamw"
    lr: float = 1e-2
    fixed: set[str] = field(default_factory=set)  # weights that are not trained

    def model(self) -> onnx.ModelProto:
        return self.build(self.weights)


def rng_for(name: str) -> np.random.Generator:
    return np.random.default_rng(list(name.encode()))


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Weights of a layer: variance 1/fan-in."""
    scale = 1 / np.sqrt(shape[0] if len(shape) == 1 else np.prod(shape[1:]))
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def make_model(nodes, inputs, outputs, weights) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "problem",
        [info(n, t, s) for n, t, s in inputs],
        [info(n, t, s) for n, t, s in outputs],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


node = helper.make_node


# ---- a multi-layer perceptron


def mlp() -> Problem:
    rng = rng_for("mlp")
    weights = {
        "w1": normal(rng, 32, 16), "b1": normal(rng, 32),
        "w2": normal(rng, 32, 32), "b2": normal(rng, 32),
        "w3": normal(rng, 5, 32), "b3": normal(rng, 5),
    }  # fmt: skip
    centres = rng.standard_normal((5, 16))
    batches = []
    for _ in range(STEPS):
        y = rng.integers(0, 5, 24)
        batches.append(((centres[y] + rng.standard_normal((24, 16))).astype(np.float32), y))
    return Problem("mlp", weights, batches, mlp_model)


def mlp_model(weights: dict) -> onnx.ModelProto:
    nodes = [
        node("Gemm", ["x", "w1", "b1"], ["h1"], transB=1),
        node("Relu", ["h1"], ["a1"]),
        node("Gemm", ["a1", "w2", "b2"], ["h2"], transB=1),
        node("Tanh", ["h2"], ["a2"]),
        node("Gemm", ["a2", "w3", "b3"], ["logits"], transB=1),
    ]
    return make_model(nodes, [("x", FLOAT, ["N", 16])], [("logits", FLOAT, ["N", 5])], weights)


# ---- a convolutional net with batch normalisation


def cnn() -> Problem:
    rng = rng_for("cnn")
    weights = {
        "conv1": normal(rng, 8, 1, 3, 3), "scale1": np.ones(8, np.float32), "shift1": np.zeros(8, np.float32),
        "mean1": np.zeros(8, np.float32), "var1": np.ones(8, np.float32),
        "conv2": normal(rng, 16, 8, 3, 3), "scale2": np.ones(16, np.float32), "shift2": np.zeros(16, np.float32),
        "mean2": np.zeros(16, np.float32), "var2": np.ones(16, np.float32),
        "w": normal(rng, 4, 16), "b": np.zeros(4, np.float32),
    }  # fmt: skip
    batches = []
    for _ in range(STEPS):
        y = rng.integers(0, 4, 16)
        x = rng.standard_normal((16, 1, 8, 8))
        for row, label in enumerate(y):  # a bright quarter
            x[row, 0, 4 * (label // 2) :][:4, 4 * (label % 2) :][:, :4] += 1.0
        batches.append((x.astype(np.float32), y))
    fixed = {"mean1", "var1", "mean2", "var2"}
    return Problem("cnn", weights, batches, cnn_model, fixed=fixed)


def cnn_model(weights: dict) -> onnx.ModelProto:
    nodes = [
        node("Conv", ["x", "conv1"], ["c1"], kernel_shape=[3, 3], pads=[1] * 4),
        node("BatchNormalization", ["c1", "scale1", "shift1", "mean1", "var1"], ["n1"]),
        node("Relu", ["n1"], ["a1"]),
        node("MaxPool", ["a1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p1", "conv2"], ["c2"], kernel_shape=[3, 3], pads=[1] * 4),
        node("BatchNormalization", ["c2", "scale2", "shift2", "mean2", "var2"], ["n2"]),
        node("Relu", ["n2"], ["a2"]),
        node("GlobalAveragePool", ["a2"], ["pooled"]),
        node("Flatten", ["pooled"], ["flat"]),
        node("Gemm", ["flat", "w", "b"], ["logits"], transB=1),
    ]
    return make_model(nodes, [("x", FLOAT, ["N", 1, 8, 8])], [("logits", FLOAT, ["N", 4])], weights)


# ---- an LSTM over a sequence


def lstm() -> Problem:
    rng = rng_for("lstm")
    hidden, size = 12, 6
    weights = {
        "W": normal(rng, 4 * hidden, size)[None], "R": normal(rng, 4 * hidden, hidden)[None],
        "B": np.zeros((1, 8 * hidden), np.float32),
        "w": normal(rng, 3, hidden), "b": np.zeros(3, np.float32),
    }  # fmt: skip
    batches = []
    for _ in range(STEPS):
        x = rng.standard_normal((10, 8, size)).astype(np.float32)
        batches.append((x, np.argmax(x[:, :, :3].sum(0), axis=1)))
    return Problem("lstm", weights, batches, lstm_model)


def lstm_model(weights: dict) -> onnx.ModelProto:
    nodes = [
        node("LSTM", ["x", "W", "R", "B"], ["", "h"], hidden_size=12),
        node("Squeeze", ["h", "axis"], ["last"]),
        node("Gemm", ["last", "w", "b"], ["logits"], transB=1),
    ]
    inputs, outputs = [("x", FLOAT, [10, "N", 6])], [("logits", FLOAT, ["N", 3])]
    return make_model(nodes, inputs, outputs, {**weights, "axis": np.array([0])})


# ---- a transformer layer over tokens


def transformer() -> Problem:
    rng = rng_for("transformer")
    d, vocabulary = 16, 11
    weights = {
        "embedding": rng.standard_normal((vocabulary, d)).astype(np.float32),
        "position": (0.1 * rng.standard_normal((7, d))).astype(np.float32),
        **{n: normal(rng, d, d) for n in ("wq", "wk", "wv", "wo")},
        "g1": np.ones(d, np.float32), "s1": np.zeros(d, np.float32),
        "up": normal(rng, d, 4 * d), "up_b": np.zeros(4 * d, np.float32),
        "down": normal(rng, 4 * d, d), "down_b": np.zeros(d, np.float32),
        "g2": np.ones(d, np.float32), "s2": np.zeros(d, np.float32),
        "out": normal(rng, d, vocabulary),
    }  # fmt: skip
    batches = []
    for _ in range(STEPS):
        x = rng.integers(0, vocabulary, (6, 7))
        batches.append((x, (x + np.roll(x, 1, axis=1)) % vocabulary))
    return Problem("transformer", weights, batches, transformer_model, lr=3e-3)


def transformer_model(weights: dict) -> onnx.ModelProto:
    nodes = [
        node("Gather", ["embedding", "x"], ["tokens"]),
        node("Add", ["tokens", "position"], ["e"]),
        *(node("MatMul", ["e", f"w{n}"], [f"{n}0"]) for n in "qkv"),
        *(node("Reshape", [f"{n}0", "heads"], [f"{n}1"]) for n in "qkv"),
        *(node("Transpose", [f"{n}1"], [f"{n}2"], perm=[0, 2, 1, 3]) for n in "qv"),
        node("Transpose", ["k1"], ["k2"], perm=[0, 2, 3, 1]),
        node("MatMul", ["q2", "k2"], ["scores0"]),
        node("Mul", ["scores0", "scale"], ["scores"]),
        node("Softmax", ["scores"], ["attention"]),
        node("MatMul", ["attention", "v2"], ["mixed0"]),
        node("Transpose", ["mixed0"], ["mixed1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["mixed1", "joined"], ["mixed"]),
        node("MatMul", ["mixed", "wo"], ["attended"]),
        node("Add", ["e", "attended"], ["r1"]),
        node("LayerNormalization", ["r1", "g1", "s1"], ["n1"], epsilon=1e-5),
        node("MatMul", ["n1", "up"], ["up0"]),
        node("Add", ["up0", "up_b"], ["up1"]),
        node("Relu", ["up1"], ["up2"]),
        node("MatMul", ["up2", "down"], ["down0"]),
        node("Add", ["down0", "down_b"], ["down1"]),
        node("Add", ["n1", "down1"], ["r2"]),
        node("LayerNormalization", ["r2", "g2", "s2"], ["n2"], epsilon=1e-5),
        node("MatMul", ["n2", "out"], ["logits"]),
    ]
    constants = {
        "heads": np.array([0, 0, 2, 8]),
        "joined": np.array([0, 0, 16]),
        "scale": np.array(8**-0.5, np.float32),
    }
    inputs, outputs = [("x", INT64, ["N", 7])], [("logits", FLOAT, ["N", 7, 11])]
    return make_model(nodes, inputs, outputs, {**weights, **constants})


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "mlp": mlp, "cnn": cnn, "lstm": lstm, "transformer": transformer,
}  # fmt: skip


# ---- settings whose answers are recorded

OPTIMIZERS = {
    "sgd": ("SGD", dict(lr=0.1)),
    "sgd weight decay": ("SGD", dict(lr=0.1, weight_decay=0.02)),
    "sgd momentum": ("SGD", dict(lr=0.05, momentum=0.9)),
    "sgd momentum dampening": (
        "SGD",
        dict(lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.01),
    ),
    "sgd nesterov": ("SGD", dict(lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.01)),
    "adam": ("Adam", dict(lr=1e-2)),
    "adam weight decay": ("Adam", dict(lr=1e-2, weight_decay=0.1)),
    "adam betas eps": ("Adam", dict(lr=1e-2, betas=(0.8, 0.95), eps=1e-3)),
    "adamw": ("AdamW", dict(lr=1e-2)),
    "adamw weight decay": ("AdamW", dict(lr=1e-2, weight_decay=0.3, betas=(0.95, 0.98))),
}
CLIPPED = {
    "adamw norm": ("AdamW", dict(lr=1e-2), dict(clip_norm=0.5)),
    "sgd norm": ("SGD", dict(lr=0.1, momentum=0.9), dict(clip_norm=0.5)),
    "sgd value": ("SGD", dict(lr=0.1), dict(clip_value=0.05)),
}
SHAPES = [(7,), (33, 5), (3, 4, 5), (1,)]


def optimizer_problem() -> tuple[list[np.ndarray], np.ndarray]:
    """Parameters, and noise for 100 steps: the gradient is p + noise, so errors would add up."""
    rng = rng_for("optimizers")
    parameters = [rng.standard_normal(s).astype(np.float32) for s in SHAPES]
    size = sum(p.size for p in parameters)
    return parameters, rng.standard_normal((100, size)).astype(np.float32)


SCHEDULES = {
    "cosine": ("CosineAnnealingLR", dict(T_max=100, eta_min=1e-3)),
    "linear": ("LinearLR", dict(start_factor=1.0, end_factor=0.1, total_iters=80)),
    "step": ("StepLR", dict(step_size=30, gamma=0.3)),
    "exponential": ("ExponentialLR", dict(gamma=0.97)),
    "warm-up": ("LinearLR", dict(start_factor=0.25, total_iters=20)),
    "constant": ("ConstantLR", dict(factor=1.0)),
}
PLATEAUS = {
    "plateau": dict(factor=0.5, patience=2),
    "plateau cooldown": dict(factor=0.5, patience=1, cooldown=3, threshold=0.01),
    "plateau max": dict(factor=0.1, patience=3, mode="max", min_lr=1e-3),
}


def plateau_values() -> np.ndarray:
    rng = rng_for("plateau")
    return np.exp(-np.arange(100) / 30) + 0.1 * rng.random(100)


WEIGHT = (0.5, 2.0, 1.0, 0.25, 3.0)
LOSSES = {
    "ce": ("CrossEntropy", dict()),
    "ce sum": ("CrossEntropy", dict(reduction="sum")),
    "ce weight": ("CrossEntropy", dict(weight=WEIGHT)),
    "ce ignore": ("CrossEntropy", dict(ignore_index=2)),
    "ce weight ignore": ("CrossEntropy", dict(weight=WEIGHT, ignore_index=2)),
    "ce smoothing": ("CrossEntropy", dict(label_smoothing=0.1)),
    "ce smoothing sum": ("CrossEntropy", dict(label_smoothing=0.1, reduction="sum")),
    "ce smoothing weight": ("CrossEntropy", dict(label_smoothing=0.2, weight=WEIGHT)),
    "ce smoothing ignore": ("CrossEntropy", dict(label_smoothing=0.2, ignore_index=2)),
    "ce everything": ("CrossEntropy", dict(label_smoothing=0.2, weight=WEIGHT, ignore_index=2)),
    "ce image": ("CrossEntropy", dict(weight=WEIGHT, ignore_index=2, label_smoothing=0.1)),
    "ce sequence": ("CrossEntropy", dict(ignore_index=2)),
    "bce": ("BinaryCrossEntropy", dict()),
    "bce sum": ("BinaryCrossEntropy", dict(reduction="sum")),
    "bce pos_weight": ("BinaryCrossEntropy", dict(pos_weight=WEIGHT)),
    "mse": ("MSE", dict()),
    "mse sum": ("MSE", dict(reduction="sum")),
    "l1": ("L1", dict()),
    "l1 sum": ("L1", dict(reduction="sum")),
    "huber": ("Huber", dict()),
    "huber delta": ("Huber", dict(delta=0.3, reduction="sum")),
}


def loss_problem(title: str) -> tuple[np.ndarray, np.ndarray]:
    """Outputs, some of them large, and targets."""
    rng = rng_for(title)
    shape = {"ce image": (3, 5, 4, 6), "ce sequence": (3, 7, 5)}.get(title, (9, 5))
    x = (3 * rng.standard_normal(shape)).astype(np.float32)
    if title.startswith("ce"):
        axis = 2 if title == "ce sequence" else 1
        return x, rng.integers(0, 5, np.delete(shape, axis))
    if title.startswith("bce"):
        return x, rng.random(shape).round().astype(np.float32)
    return x, (x + rng.standard_normal(shape)).astype(np.float32)
