"""The demo's networks. Each maps x [N, 1, 8, 8] to logits [N, 10]."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxgrad.files.write import save


class Sketch:
    """Nodes and weights, added one after the other."""

    def __init__(self, seed: int = 0):
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(
        self, name: str, *shape: int, fan_in: int | None = None, value: float | None = None
    ) -> str:
        """Normal numbers with variance 2/fan_in, or one value everywhere."""
        spread = (2 / fan_in) ** 0.5 if fan_in else 0.0
        array = np.full(shape, value) if value is not None else self.rng.normal(0, spread, shape)
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def integers(self, name: str, *numbers: int) -> str:
        self.weights.append(numpy_helper.from_array(np.array(numbers, np.int64), name))
        return name

    def add(
        self, op: str, *inputs: str, out: str | None = None, outputs: int = 1, **attributes
    ) -> str:
        name = out or f"{op.lower()}_{len(self.nodes)}"
        names = [name] if outputs == 1 else [*[""] * (outputs - 1), name]
        self.nodes.append(
            helper.make_node(op, list(inputs), names, name=f"{op}_{len(self.nodes)}", **attributes)
        )
        return name

    def dense(self, x: str, name: str, inputs: int, outputs: int, out: str | None = None) -> str:
        w = self.weight(f"{name}.weight", inputs, outputs, fan_in=inputs)
        return self.add(
            "Add",
            self.add("MatMul", x, w),
            self.weight(f"{name}.bias", outputs, value=0.0),
            out=out,
        )

    def model(
        self,
        name: str,
        row: tuple[int, ...] = (1, 8, 8),
        classes: int = 10,
        kind: int = TensorProto.FLOAT,
    ) -> onnx.ModelProto:
        """The model from x, rows of shape `row`, to logits [N, classes]."""
        x = helper.make_tensor_value_info("x", kind, ["N", *row])
        y = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", classes])
        graph = helper.make_graph(self.nodes, name, [x], [y], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        model.producer_name = "onnxgrad demo"
        onnx.checker.check_model(model)
        return model


def cnn() -> onnx.ModelProto:
    """Two convolutions with batch normalisation, a pool, a dense layer."""
    s, h, channels = Sketch(), "x", 1
    for number, width in enumerate((16, 32)):
        name = f"block{number}"
        w = s.weight(f"{name}.conv.weight", width, channels, 3, 3, fan_in=9 * channels)
        h = s.add("Conv", h, w, pads=[1, 1, 1, 1], kernel_shape=[3, 3])
        values = {"scale": 1.0, "bias": 0.0, "mean": 0.0, "var": 1.0}
        h = s.add(
            "BatchNormalization",
            h,
            *(s.weight(f"{name}.norm.{k}", width, value=v) for k, v in values.items()),
        )
        h = s.add("MaxPool", s.add("Relu", h), kernel_shape=[2, 2], strides=[2, 2])
        channels = width
    s.dense(s.add("Flatten", h), "head", 32 * 4, 10, out="logits")
    return s.model("digits_cnn")


def recurrent(kind: str) -> onnx.ModelProto:
    """Eight rows of eight pixels, read from top to bottom; the last state decides."""
    s, hidden = Sketch(), 48
    gates = 4 if kind == "LSTM" else 3
    rows = s.add("Squeeze", "x", s.integers("channel", 1))
    sequence = s.add("Transpose", rows, perm=[1, 0, 2])  # [time, N, pixels]
    w = s.weight("rnn.W", 1, gates * hidden, 8, fan_in=16)
    r = s.weight("rnn.R", 1, gates * hidden, hidden, fan_in=2 * hidden)
    b = s.weight("rnn.B", 1, 2 * gates * hidden, value=0.0)
    last = f"{kind.lower()}_state"
    s.nodes.append(
        helper.make_node(kind, [sequence, w, r, b], ["", last], name=kind, hidden_size=hidden)
    )
    state = s.add("Squeeze", last, s.integers("direction", 0))
    s.dense(state, "head", hidden, 10, out="logits")
    return s.model(f"digits_{kind.lower()}")


def transformer() -> onnx.ModelProto:
    """Eight tokens, one for each row of pixels; one block of attention and a mean over the tokens."""
    s, width = Sketch(), 32
    h = s.dense(s.add("Squeeze", "x", s.integers("channel", 1)), "embed", 8, width)
    h = s.add("Add", h, s.weight("position", 8, width, fan_in=2 * width))
    pooled = s.add("ReduceMean", attention_block(s, h, 8, width), axes=[1], keepdims=0)
    s.dense(pooled, "head", width, 10, out="logits")
    return s.model("digits_transformer")


def attention_block(
    s: Sketch, h: str, tokens: int, width: int, heads: int = 4, name: str = ""
) -> str:
    """Attention and a layer twice as wide, each beside the residual and behind its norm."""
    n = layer_norm(s, h, f"{name}norm1", width)
    q, k, v = (
        split_heads(s, s.dense(n, name + part, width, width), tokens, heads, width)
        for part in ("query", "key", "value")
    )
    scores = s.add("MatMul", q, s.add("Transpose", k, perm=[0, 1, 3, 2]))
    scale = s.weight(f"{name}scale", value=(width // heads) ** -0.5)
    mixed = s.add("MatMul", s.add("Softmax", s.add("Mul", scores, scale), axis=-1), v)
    joined = s.add(
        "Reshape",
        s.add("Transpose", mixed, perm=[0, 2, 1, 3]),
        s.integers(f"{name}joined", 0, tokens, width),
    )
    h = s.add("Add", h, s.dense(joined, f"{name}project", width, width))
    n = layer_norm(s, h, f"{name}norm2", width)
    up = s.add("Relu", s.dense(n, f"{name}up", width, 2 * width))
    return s.add("Add", h, s.dense(up, f"{name}down", 2 * width, width))


def layer_norm(s: Sketch, x: str, name: str, width: int) -> str:
    scale, bias = (
        s.weight(f"{name}.scale", width, value=1.0),
        s.weight(f"{name}.bias", width, value=0.0),
    )
    return s.add("LayerNormalization", x, scale, bias)


def split_heads(s: Sketch, x: str, tokens: int, heads: int, width: int) -> str:
    shape = s.integers(f"{x}_heads", 0, tokens, heads, width // heads)
    return s.add("Transpose", s.add("Reshape", x, shape), perm=[0, 2, 1, 3])


MODELS = {
    "cnn": cnn,
    "gru": lambda: recurrent("GRU"),
    "lstm": lambda: recurrent("LSTM"),
    "transformer": transformer,
}


def write(kind: str, path: Path) -> None:
    """Write one of the demo's networks, untrained."""
    save(MODELS[kind](), path)
