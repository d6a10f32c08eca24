"""The models of bench/training.py at the sizes that people train on a CPU: weights, a batch, the ONNX graph.

The PyTorch side of each is in workers/train_pytorch.py, on the same weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


@dataclass
class Net:
    """Writes a graph: `y = net("Relu", x)`; weights are drawn as they are named."""

    seed: int
    nodes: list = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)

    def __call__(self, op: str, *inputs: str, outputs: int = 1, **attributes) -> str:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names[1] if op == "LSTM" else names[0]

    def weight(self, name: str, *shape: int, fan: int | None = None) -> str:
        fan = fan or int(np.prod(shape[1:]))
        self.weights[name] = (self.rng.standard_normal(shape) / np.sqrt(fan)).astype(np.float32)
        return name

    def fill(self, name: str, value: float, *shape: int) -> str:
        self.weights[name] = np.full(shape, value, np.float32)
        return name

    def constant(self, name: str, value) -> str:
        self.constants[name] = np.asarray(value)
        return name

    def model(self, inputs, outputs, last: str) -> onnx.ModelProto:
        info = helper.make_tensor_value_info
        self.nodes.append(helper.make_node("Identity", [last], [outputs[0]]))
        initializers = {**self.weights, **self.constants}
        graph = helper.make_graph(
            self.nodes, "net", [info(*i) for i in inputs], [info(*outputs)],
            [numpy_helper.from_array(a, n) for n, a in initializers.items()],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@dataclass
class Workload:
    """A model and the batch that every step trains on."""

    title: str
    net: Net
    model: onnx.ModelProto
    x: np.ndarray
    y: np.ndarray


def mlp() -> Workload:
    net, batch = Net(1), 128
    h = "x"
    for i, (a, b) in enumerate([(784, 1024), (1024, 1024), (1024, 10)]):
        h = net("Gemm", h, net.weight(f"w{i}", b, a), net.fill(f"b{i}", 0, b), transB=1)
        h = net("Relu", h) if i < 2 else h
    model = net.model([("x", FLOAT, ["N", 784])], ("logits", FLOAT, ["N", 10]), h)
    x = net.rng.standard_normal((batch, 784)).astype(np.float32)
    y = net.rng.integers(0, 10, batch)
    return Workload("MLP 784-1024-1024-10, batch 128", net, model, x, y)


def resnet() -> Workload:
    net, batch = Net(2), 16

    def conv(h, name, a, b, k, stride=1):
        pad = [k // 2] * 4
        w = net.weight(f"{name}/w", b, a, k, k)
        h = net("Conv", h, w, kernel_shape=[k, k], strides=[stride] * 2, pads=pad)
        parts = [net.fill(f"{name}/{n}", v, b) for n, v in zip("sbmv", (1, 0, 0, 1), strict=True)]
        return net("BatchNormalization", h, *parts)

    h, width = net("Relu", conv("x", "stem", 3, 64, 3)), 64
    for stage, channels in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride, name = 2 if stage and not block else 1, f"{stage}{block}"
            y = net("Relu", conv(h, f"{name}a", width, channels, 3, stride))
            y = conv(y, f"{name}b", channels, channels, 3)
            if stride > 1:
                h = conv(h, f"{name}s", width, channels, 1, stride)
            h, width = net("Relu", net("Add", y, h)), channels
    h = net("Flatten", net("GlobalAveragePool", h))
    h = net("Gemm", h, net.weight("w", 10, 512), net.fill("b", 0, 10), transB=1)
    model = net.model([("x", FLOAT, ["N", 3, 32, 32])], ("logits", FLOAT, ["N", 10]), h)
    x = net.rng.standard_normal((batch, 3, 32, 32)).astype(np.float32)
    y = net.rng.integers(0, 10, batch)
    return Workload("ResNet-18 at 32×32, batch 16", net, model, x, y)


def lstm() -> Workload:
    net, steps, batch, size, hidden = Net(3), 64, 32, 128, 256
    w, r = net.weight("W", 1, 4 * hidden, size), net.weight("R", 1, 4 * hidden, hidden)
    h = net("LSTM", "x", w, r, net.fill("B", 0, 1, 8 * hidden), outputs=3, hidden_size=hidden)
    h = net("Squeeze", h, net.constant("axis", [0]))
    h = net("Gemm", h, net.weight("w", 10, hidden), net.fill("b", 0, 10), transB=1)
    model = net.model([("x", FLOAT, [steps, "N", size])], ("logits", FLOAT, ["N", 10]), h)
    x = net.rng.standard_normal((steps, batch, size)).astype(np.float32)
    y = net.rng.integers(0, 10, batch)
    return Workload("LSTM 128-256, 64 steps, batch 32", net, model, x, y)


def transformer() -> Workload:
    net, batch, length, d, heads, vocabulary = Net(4), 8, 128, 256, 4, 8000
    h = net("Gather", net.weight("embedding", vocabulary, d, fan=d), "x")
    h = net("Add", h, net.weight("position", length, d, fan=100 * d))
    split = net.constant("split", np.array([0, 0, heads, d // heads]))
    join = net.constant("join", np.array([0, 0, d]))
    scale = net.constant("scale", np.float32((d // heads) ** -0.5))

    def linear(h, name, a, b):
        return net(
            "Add",
            net("MatMul", h, net.weight(f"{name}/w", a, b, fan=a)),
            net.fill(f"{name}/b", 0, b),
        )

    def norm(h, name):
        # all outputs, though one is used: the old package cannot differentiate it otherwise
        scale, shift = net.fill(f"{name}/g", 1, d), net.fill(f"{name}/s", 0, d)
        return net("LayerNormalization", h, scale, shift, outputs=3)

    for i in range(4):
        q, k, v = (net("Reshape", linear(h, f"{i}{n}", d, d), split) for n in "qkv")
        q, v = (net("Transpose", t, perm=[0, 2, 1, 3]) for t in (q, v))
        scores = net("Mul", net("MatMul", q, net("Transpose", k, perm=[0, 2, 3, 1])), scale)
        mixed = net("Transpose", net("MatMul", net("Softmax", scores), v), perm=[0, 2, 1, 3])
        h = norm(net("Add", h, linear(net("Reshape", mixed, join), f"{i}o", d, d)), f"{i}n1")
        up = net("Relu", linear(h, f"{i}up", d, 4 * d))
        h = norm(net("Add", h, linear(up, f"{i}down", 4 * d, d)), f"{i}n2")
    h = linear(h, "out", d, vocabulary)
    shape = ["N", length, vocabulary]
    model = net.model([("x", INT64, ["N", length])], ("logits", FLOAT, shape), h)
    x, y = (net.rng.integers(0, vocabulary, (batch, length)) for _ in range(2))
    return Workload("Transformer, 4 layers of 256, 128 tokens, batch 8", net, model, x, y)


def _classifier(net: Net, h: str, width: int, classes: int = 10) -> str:
    return net("Gemm", h, net.weight("w", classes, width), net.fill("b", 0, classes), transB=1)


def lenet() -> Workload:
    net, batch = Net(5), 64
    h = "x"
    for i, (a, b) in enumerate([(1, 32), (32, 64)]):
        h = net(
            "Conv",
            h,
            net.weight(f"c{i}", b, a, 5, 5),
            net.fill(f"d{i}", 0, b),
            kernel_shape=[5, 5],
            pads=[2] * 4,
        )
        h = net("MaxPool", net("Relu", h), kernel_shape=[2, 2], strides=[2, 2])
    h = net("Flatten", h)
    h = net(
        "Relu", net("Gemm", h, net.weight("w0", 256, 64 * 49), net.fill("b0", 0, 256), transB=1)
    )
    model = net.model(
        [("x", FLOAT, ["N", 1, 28, 28])], ("logits", FLOAT, ["N", 10]), _classifier(net, h, 256)
    )
    x = net.rng.standard_normal((batch, 1, 28, 28)).astype(np.float32)
    return Workload("LeNet 32-64 at 28×28, batch 64", net, model, x, net.rng.integers(0, 10, batch))


def mobilenet() -> Workload:
    """Inverted residuals: 1×1, depthwise 3×3, 1×1, each with a batch normalisation."""
    net, batch = Net(6), 16

    def conv(h, name, a, b, k, stride=1, group=1):
        w = net.weight(f"{name}/w", b, a // group, k, k)
        h = net(
            "Conv", h, w, kernel_shape=[k, k], strides=[stride] * 2, pads=[k // 2] * 4, group=group
        )
        return net("BatchNormalization", h, *(
            net.fill(f"{name}/{n}", v, b) for n, v in zip("sbmv", (1, 0, 0, 1), strict=True)))  # fmt: skip

    low, high = net.constant("low", np.float32(0)), net.constant("high", np.float32(6))
    h, width = net("Clip", conv("x", "stem", 3, 32, 3), low, high), 32
    for i, (channels, stride) in enumerate([(32, 1), (64, 2), (64, 1), (128, 2), (128, 1)]):
        wide = 4 * width
        y = net("Clip", conv(h, f"{i}a", width, wide, 1), low, high)
        y = net("Clip", conv(y, f"{i}b", wide, wide, 3, stride, wide), low, high)
        y = conv(y, f"{i}c", wide, channels, 1)
        h, width = (net("Add", h, y) if stride == 1 and width == channels else y), channels
    h = net("Flatten", net("GlobalAveragePool", h))
    model = net.model(
        [("x", FLOAT, ["N", 3, 64, 64])], ("logits", FLOAT, ["N", 10]), _classifier(net, h, width)
    )
    x = net.rng.standard_normal((batch, 3, 64, 64)).astype(np.float32)
    return Workload(
        "MobileNetV2, 5 blocks at 64×64, batch 16", net, model, x, net.rng.integers(0, 10, batch)
    )


def gru() -> Workload:
    net, steps, batch, size, hidden = Net(7), 64, 32, 128, 128
    w, r = net.weight("W", 2, 3 * hidden, size), net.weight("R", 2, 3 * hidden, hidden)
    net("GRU", "x", w, r, net.fill("B", 0, 2, 6 * hidden), outputs=2, hidden_size=hidden,
        direction="bidirectional", linear_before_reset=1)  # fmt: skip
    h = net("Transpose", "v0_0", perm=[2, 0, 1, 3])
    h = net(
        "ReduceMean",
        net("Reshape", h, net.constant("join", [0, 0, 2 * hidden])),
        axes=[1],
        keepdims=0,
    )
    logits = _classifier(net, h, 2 * hidden)
    model = net.model([("x", FLOAT, [steps, "N", size])], ("logits", FLOAT, ["N", 10]), logits)
    x = net.rng.standard_normal((steps, batch, size)).astype(np.float32)
    return Workload(
        "GRU 128-128, both directions, 64 steps, batch 32",
        net,
        model,
        x,
        net.rng.integers(0, 10, batch),
    )


def audio() -> Workload:
    """Convolutions over a waveform, each layer half as long."""
    net, batch, length = Net(8), 16, 8000
    h, width = "x", 1
    for i, b in enumerate((32, 64, 64, 128)):
        w = net.weight(f"c{i}", b, width, 9)
        h = net(
            "Conv",
            h,
            w,
            net.fill(f"d{i}", 0, b),
            kernel_shape=[9],
            strides=[4 if i == 0 else 2],
            pads=[4, 4],
        )
        h, width = net("Relu", h), b
    h = net("Flatten", net("GlobalAveragePool", h))
    model = net.model(
        [("x", FLOAT, ["N", 1, length])], ("logits", FLOAT, ["N", 10]), _classifier(net, h, width)
    )
    x = net.rng.standard_normal((batch, 1, length)).astype(np.float32)
    return Workload(
        "1-D convolutions over 8,000 samples, batch 16",
        net,
        model,
        x,
        net.rng.integers(0, 10, batch),
    )


def deepfm() -> Workload:
    """A factorisation machine over 20 fields of 10,000 values, and an MLP beside it."""
    net, batch, fields, rows, d = Net(9), 512, 20, 10_000, 16
    e = net("Gather", net.weight("embedding", rows, d, fan=100 * d), "x")
    total = net("ReduceSum", e, net.constant("one", [1]), keepdims=0)
    squares = net("ReduceSum", net("Mul", e, e), "one", keepdims=0)
    pairs = net("Sub", net("Mul", total, total), squares)
    deep = net("Reshape", e, net.constant("join", [0, fields * d]))
    for i, (a, b) in enumerate([(fields * d, 256), (256, 128)]):
        deep = net(
            "Relu", net("Gemm", deep, net.weight(f"w{i}", b, a), net.fill(f"b{i}", 0, b), transB=1)
        )
    h = net("Concat", pairs, deep, axis=1)
    model = net.model(
        [("x", INT64, ["N", fields])], ("logits", FLOAT, ["N", 2]), _classifier(net, h, d + 128, 2)
    )
    x = net.rng.integers(0, rows, (batch, fields))
    return Workload(
        "DeepFM, 20 fields of 10,000, batch 512", net, model, x, net.rng.integers(0, 2, batch)
    )


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "mlp": mlp, "lenet": lenet, "resnet": resnet, "mobilenet": mobilenet, "audio": audio, "lstm": lstm, "gru": gru,
    "transformer": transformer, "deepfm": deepfm,
}  # fmt: skip
