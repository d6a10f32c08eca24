"""Small networks for the goldens of the drop-in, in forms that the old package can differentiate."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 15
BATCH = 6
BATCHES = 4  # the training loop goes round and round them


class Net:
    """A graph under construction: weights are drawn where they are used."""

    def __init__(self, seed: int):
        self.random = np.random.RandomState(seed)
        self.nodes: list = []
        self.weights: list = []
        self.frozen: list[str] = []
        self.constants = 0

    def weight(self, name: str, *shape: int, scale: float | None = None) -> str:
        scale = 1 / math.sqrt(shape[-1]) if scale is None else scale
        array = (self.random.standard_normal(shape) * scale).astype(np.float32)
        return self.array(name, array)

    def array(self, name: str, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def number(self, value) -> str:
        self.constants += 1
        name = f"c{self.constants}"
        tensor = numpy_helper.from_array(np.asarray(value), f"{name}_value")
        self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        return name

    def op(self, kind: str, *inputs: str, to: str | None = None, **attributes) -> str:
        name = to or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def linear(self, name: str, x: str, wide: int, high: int) -> str:
        w, b = (
            self.weight(f"{name}.weight", high, wide),
            self.weight(f"{name}.bias", high, scale=0.1),
        )
        return self.op("Gemm", x, w, b, transB=1)

    def project(self, name: str, x: str, wide: int, high: int) -> str:
        w, b = (
            self.weight(f"{name}.weight", wide, high),
            self.weight(f"{name}.bias", high, scale=0.1),
        )
        return self.op("Add", self.op("MatMul", x, w), b)

    def layer_norm(self, name: str, x: str, width: int) -> str:
        """As exporters write it before opset 17."""
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        square = self.op("Pow", centred, self.number(np.float32(2)))
        variance = self.op("ReduceMean", square, axes=[-1])
        spread = self.op("Sqrt", self.op("Add", variance, self.number(np.float32(1e-5))))
        scale = self.array(f"{name}.weight", np.ones(width, np.float32))
        bias = self.array(f"{name}.bias", np.zeros(width, np.float32))
        return self.op("Add", self.op("Mul", self.op("Div", centred, spread), scale), bias)

    def model(self, inputs: dict, output: tuple) -> onnx.ModelProto:
        values = [
            helper.make_tensor_value_info(n, kind, dims) for n, (kind, dims) in inputs.items()
        ]
        name, dims = output
        self.op("Identity", name, to="output")
        result = helper.make_tensor_value_info("output", TensorProto.FLOAT, dims)
        graph = helper.make_graph(self.nodes, "net", values, [result], self.weights)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        return model


def mlp() -> tuple[Net, onnx.ModelProto]:
    net = Net(1)
    hidden = net.op("Relu", net.linear("fc1", "input", 7, 16))
    hidden = net.op("Tanh", net.linear("fc2", hidden, 16, 12))
    y = net.linear("fc3", hidden, 12, 3)
    return net, net.model({"input": (TensorProto.FLOAT, ["batch", 7])}, (y, ["batch", 3]))


def _conv_bn(net: Net, name: str, x: str, inside: int, outside: int) -> str:
    w = net.weight(f"{name}.weight", outside, inside, 3, 3, scale=0.3)
    b = net.weight(f"{name}.bias", outside, scale=0.1)
    y = net.op("Conv", x, w, b, pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    scale = net.array(f"{name}.bn.weight", np.ones(outside, np.float32))
    bias = net.array(f"{name}.bn.bias", np.zeros(outside, np.float32))
    mean = net.array(f"{name}.bn.running_mean", np.zeros(outside, np.float32))
    var = net.array(f"{name}.bn.running_var", np.ones(outside, np.float32))
    net.frozen += [mean, var]
    out = f"{name}.bn"
    node = helper.make_node(
        "BatchNormalization", [y, scale, bias, mean, var],
        [out, f"{out}.new_mean", f"{out}.new_var"], name=out, training_mode=1, momentum=0.9,
    )  # fmt: skip
    net.nodes.append(node)
    return net.op("Relu", out)


def cnn() -> tuple[Net, onnx.ModelProto]:
    net = Net(2)
    x = _conv_bn(net, "conv1", "input", 2, 6)
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = _conv_bn(net, "conv2", x, 6, 8)
    x = net.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    y = net.linear("fc", x, 8, 4)
    return net, net.model({"input": (TensorProto.FLOAT, [BATCH, 2, 8, 8])}, (y, [BATCH, 4]))


def _recurrent(kind: str, gates: int, seed: int, classes: int) -> tuple[Net, onnx.ModelProto]:
    net = Net(seed)
    w = net.weight("rnn.W", 1, gates * 6, 5)
    r = net.weight("rnn.R", 1, gates * 6, 6)
    b = net.weight("rnn.B", 1, 2 * gates * 6, scale=0.1)
    extra = {"linear_before_reset": 1} if kind == "GRU" else {}
    h0 = net.number(np.zeros((1, BATCH, 6), np.float32))
    # As torch.onnx writes it: the old package differentiates no other form.
    inputs, outputs = ["input", w, r, b, "", h0], ["rnn.Y", "rnn.Y_h"]
    if kind == "LSTM":
        inputs.append(h0)
        outputs.append("rnn.Y_c")
    node = helper.make_node(kind, inputs, outputs, name="rnn", hidden_size=6, **extra)
    net.nodes.append(node)
    y = net.op("Squeeze", "rnn.Y", net.number(np.array([1])))
    last = net.op("Gather", y, net.number(np.array(-1)), axis=0)
    y = net.linear("fc", last, 6, classes)
    return net, net.model({"input": (TensorProto.FLOAT, [8, BATCH, 5])}, (y, [BATCH, classes]))


def lstm() -> tuple[Net, onnx.ModelProto]:
    return _recurrent("LSTM", 4, 3, 3)


def gru() -> tuple[Net, onnx.ModelProto]:
    return _recurrent("GRU", 3, 4, 3)


def _heads(net: Net, x: str, heads: int, size: int, perm: list[int]) -> str:
    shape = net.number(np.array([0, 0, heads, size]))
    return net.op("Transpose", net.op("Reshape", x, shape), perm=perm)


def _attention(net: Net, name: str, x: str, width: int, heads: int) -> str:
    size = width // heads
    q = _heads(net, net.project(f"{name}.q", x, width, width), heads, size, [0, 2, 1, 3])
    k = _heads(net, net.project(f"{name}.k", x, width, width), heads, size, [0, 2, 3, 1])
    v = _heads(net, net.project(f"{name}.v", x, width, width), heads, size, [0, 2, 1, 3])
    scores = net.op("Div", net.op("MatMul", q, k), net.number(np.float32(math.sqrt(size))))
    mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1), v)
    back = net.op("Transpose", mixed, perm=[0, 2, 1, 3])
    joined = net.op("Reshape", back, net.number(np.array([0, 0, width])))
    return net.project(f"{name}.out", joined, width, width)


def _gelu(net: Net, x: str) -> str:
    erf = net.op("Erf", net.op("Div", x, net.number(np.float32(math.sqrt(2)))))
    return net.op("Mul", net.op("Mul", x, net.op("Add", erf, net.number(np.float32(1)))),
                  net.number(np.float32(0.5)))  # fmt: skip


def bert() -> tuple[Net, onnx.ModelProto]:
    net, width = Net(5), 16
    words = net.op("Gather", net.weight("embed.words", 20, width, scale=0.5), "input")
    places = net.weight("embed.places", 7, width, scale=0.5)
    x = net.layer_norm("embed.norm", net.op("Add", words, places), width)
    for layer in ("layer0", "layer1"):
        attended = _attention(net, layer, x, width, 2)
        x = net.layer_norm(f"{layer}.norm1", net.op("Add", x, attended), width)
        inner = _gelu(net, net.project(f"{layer}.up", x, width, 24))
        inner = net.project(f"{layer}.down", inner, 24, width)
        x = net.layer_norm(f"{layer}.norm2", net.op("Add", x, inner), width)
    first = net.op("Gather", x, net.number(np.array(0)), axis=1)
    pooled = net.op("Tanh", net.linear("pooler", first, width, width))
    y = net.linear("classifier", pooled, width, 3)
    return net, net.model({"input": (TensorProto.INT64, ["batch", 7])}, (y, ["batch", 3]))


NETS = {"mlp": mlp, "cnn": cnn, "lstm": lstm, "gru": gru, "bert": bert}
LOSSES = {"mlp": "MSELoss", "cnn": "CrossEntropyLoss", "lstm": "CrossEntropyLoss",
          "gru": "MSELoss", "bert": "CrossEntropyLoss"}  # fmt: skip


def batches(name: str, model: onnx.ModelProto) -> list[tuple[np.ndarray, np.ndarray]]:
    """Inputs and targets: noise, which a small net can learn by heart."""
    random = np.random.RandomState(len(name) + 10)
    sizes = [d.dim_value or BATCH for d in model.graph.input[0].type.tensor_type.shape.dim]
    classes = model.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    found = []
    for _ in range(BATCHES):
        if name == "bert":
            x = random.randint(0, 20, sizes).astype(np.int64)
        else:
            x = random.standard_normal(sizes).astype(np.float32)
        if LOSSES[name] == "MSELoss":
            y = random.standard_normal((BATCH, classes)).astype(np.float32)
        else:
            y = random.randint(0, classes, (BATCH,)).astype(np.int64)
        found.append((x, y))
    return found
