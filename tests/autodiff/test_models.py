"""Small models as exporters write them: fused and standard gradients against central differences.

They stand in for files: each is a chain of nodes as torch.onnx and others emit them, with weights
in initializers, symbolic batch sizes, and the opsets that are met in practice.
"""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from autodiff.harness import evaluator, fused_evaluator, make_session
from onnx import TensorProto, helper, numpy_helper

from onnxgrad.autodiff import vjp

ints = lambda *n: np.array(n, np.int64)  # noqa: E731


class Net:
    """A graph under construction: `net.Relu(x)` adds a node and returns its output's name."""

    def __init__(self, opset=17, seed=0):
        self.opset, self.rng = opset, np.random.default_rng(seed)
        self.nodes, self.weights, self.inputs, self.feeds = [], [], [], {}

    def __getattr__(self, op_type):
        def add(*inputs, outputs=1, **attributes):
            names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
            inputs = [self.constant(x) if isinstance(x, np.ndarray) else x or "" for x in inputs]
            self.nodes.append(helper.make_node(op_type, inputs, names, **attributes))
            return names[0] if outputs == 1 else names

        return add

    def input(self, name, array, dims):
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, dims))
        self.feeds[name] = array
        return name

    def constant(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, *shape, scale=None):
        scale = scale or 1 / np.sqrt(np.prod(shape[1:]) if len(shape) > 1 else 1)
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def ones(self, *shape):
        return self.constant(self.rng.uniform(0.5, 1.5, shape).astype(np.float32))

    def normal(self, *shape):
        return self.rng.standard_normal(shape).astype(np.float32)

    def model(self, *outputs):
        infos = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self.nodes, "net", self.inputs, infos, self.weights)
        imports = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=8)
        return onnx.shape_inference.infer_shapes(model), self.feeds


def conv(net, x, c, m, k=3, **attributes):
    group = attributes.get("group", 1)
    pads = attributes.pop("pads", [k // 2] * 4)
    return net.Conv(x, net.weight(m, c // group, k, k), net.weight(m, scale=0.1), pads=pads,
                    kernel_shape=[k, k], **attributes)  # fmt: skip


def batch_norm(net, x, c, **attributes):
    outputs = 3 if attributes.get("training_mode") else 1
    args = (net.ones(c), net.weight(c, scale=0.3), net.weight(c, scale=0.3), net.ones(c))
    y = net.BatchNormalization(x, *args, outputs=outputs, **attributes)
    return y[0] if outputs > 1 else y


def linear(net, x, i, o):
    return net.Add(net.MatMul(x, net.weight(i, o)), net.weight(o, scale=0.1))


def mlp(opset=17):
    net = Net(opset)
    x = net.input("x", net.normal(5, 6), ["N", 6])
    h = net.Gemm(x, net.weight(8, 6), net.weight(8), transB=1)
    h = net.Tanh(net.Gemm(net.Sigmoid(h), net.weight(8, 7), net.weight(7)))
    return net.model(net.LogSoftmax(h, axis=-1))


def conv_net(training):
    net = Net(seed=4)
    x = net.input("x", net.normal(2, 3, 8, 8), ["N", 3, 8, 8])
    h = net.Relu(batch_norm(net, conv(net, x, 3, 6), 6, training_mode=training))
    h = net.MaxPool(h, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    r = h
    h = net.Relu(batch_norm(net, conv(net, h, 6, 6), 6, training_mode=training))
    h = net.Add(conv(net, h, 6, 6), r)
    h = net.Flatten(net.GlobalAveragePool(h))
    return net.model(net.Gemm(h, net.weight(4, 6), net.weight(4), transB=1))


def mobile():
    net = Net()
    x = net.input("x", net.normal(2, 4, 7, 7), ["N", 4, "H", "W"])
    h = net.HardSwish(conv(net, x, 4, 8, 1))
    h = net.Clip(conv(net, h, 8, 8, group=8, strides=[2, 2]), np.float32(0) + np.zeros((), "f4"),
                 np.full((), 6, np.float32))  # fmt: skip
    s = net.ReduceMean(h, axes=[2, 3], keepdims=1)
    s = net.HardSigmoid(conv(net, net.Relu(conv(net, s, 8, 2, 1)), 2, 8, 1), alpha=1 / 6)
    h = conv(net, net.Mul(h, s), 8, 4, 1)
    return net.model(net.AveragePool(h, kernel_shape=[2, 2], strides=[2, 2]))


def u_net():
    net = Net()
    x = net.input("x", net.normal(1, 2, 8, 8), ["N", 2, 8, 8])
    a = net.LeakyRelu(conv(net, x, 2, 4), alpha=0.1)
    b = net.Elu(conv(net, net.MaxPool(a, kernel_shape=[2, 2], strides=[2, 2]), 4, 6))
    c = net.ConvTranspose(b, net.weight(6, 4, 2, 2), net.weight(4), strides=[2, 2])
    d = net.Resize(b, "", np.array([1, 1, 2, 2], np.float32), mode="linear",
                   coordinate_transformation_mode="pytorch_half_pixel")  # fmt: skip
    h = net.Concat(a, c, d, axis=1)
    h = net.InstanceNormalization(h, net.ones(14), net.weight(14, scale=0.2))
    return net.model(net.Sigmoid(conv(net, h, 14, 1, 1)))


def lstm_classifier():
    net = Net()
    ids = net.input("ids", net.rng.integers(0, 11, (2, 5)), ["N", "S"])
    x = net.Transpose(net.Gather(net.weight(11, 6), ids), perm=[1, 0, 2])
    y, h, _ = net.LSTM(x, net.weight(2, 20, 6, scale=0.4), net.weight(2, 20, 5, scale=0.4),
                       net.weight(2, 40, scale=0.2), hidden_size=5, direction="bidirectional",
                       outputs=3)  # fmt: skip
    last = net.Reshape(net.Transpose(h, perm=[1, 0, 2]), ints(0, -1))
    mean = net.Reshape(net.ReduceMean(y, axes=[0], keepdims=0), ints(0, -1))  # [2, N·H]
    return net.model(linear(net, last, 10, 3), net.ReduceSum(mean, ints(1)))


def gru_tagger():
    net = Net()
    x = net.input("x", net.normal(4, 2, 6), ["S", "N", 6])
    y, _ = net.GRU(x, net.weight(1, 15, 6, scale=0.4), net.weight(1, 15, 5, scale=0.4),
                   net.weight(1, 30, scale=0.2), hidden_size=5, linear_before_reset=1,
                   outputs=2)  # fmt: skip
    return net.model(net.Softmax(linear(net, net.Squeeze(y, ints(1)), 5, 4), axis=-1))


def attention(net, x, size, heads, mask=None):
    def split(y):
        return net.Transpose(net.Reshape(y, ints(0, 0, heads, size // heads)), perm=[0, 2, 1, 3])

    q, k, v = (split(linear(net, x, size, size)) for _ in range(3))
    scores = net.MatMul(q, net.Transpose(k, perm=[0, 1, 3, 2]))
    scores = net.Div(scores, np.full((), np.sqrt(size // heads), np.float32))
    scores = scores if mask is None else net.Where(mask, scores, np.full((), -1e9, np.float32))
    mixed = net.Transpose(net.MatMul(net.Softmax(scores, axis=-1), v), perm=[0, 2, 1, 3])
    return linear(net, net.Reshape(mixed, ints(0, 0, size)), size, size)


def layer_norm(net, x, size):
    """As older exporters write it: by ReduceMean, Pow, Sqrt."""
    centred = net.Sub(x, net.ReduceMean(x, axes=[-1]))
    variance = net.ReduceMean(net.Pow(centred, np.full((), 2, np.float32)), axes=[-1])
    deviation = net.Sqrt(net.Add(variance, np.full((), 1e-5, np.float32)))
    return net.Add(net.Mul(net.Div(centred, deviation), net.ones(size)), net.weight(size))


def gelu(net, x):
    half = net.Add(net.Erf(net.Div(x, np.full((), np.sqrt(2), np.float32))), np.ones((), "f4"))
    return net.Mul(net.Mul(x, half), np.full((), 0.5, np.float32))


def encoder():
    net = Net()
    x = net.input("x", net.normal(2, 5, 8), ["N", "S", 8])
    h = layer_norm(net, net.Add(x, attention(net, x, 8, 2)), 8)
    f = linear(net, gelu(net, linear(net, h, 8, 12)), 12, 8)
    return net.model(layer_norm(net, net.Add(h, f), 8))


def gpt():
    net = Net()
    ids = net.input("ids", net.rng.integers(0, 9, (2, 4)), ["N", "S"])
    table = net.weight(9, 8)
    length = net.Squeeze(net.Gather(net.Shape(ids), ints(1), axis=0), ints(0))
    places = net.Range(np.array(0), length, np.array(1))
    x = net.Add(net.Gather(table, ids), net.Gather(net.weight(6, 8), places))
    square = net.Unsqueeze(length, ints(0))
    ones = net.ConstantOfShape(net.Concat(square, square, axis=0),
                               value=numpy_helper.from_array(np.ones(1, np.float32)))  # fmt: skip
    mask = net.Cast(net.Trilu(ones, upper=0), to=TensorProto.BOOL)
    n = net.LayerNormalization(x, net.ones(8), net.weight(8))
    x = net.Add(x, attention(net, n, 8, 2, mask))
    n = net.LayerNormalization(x, net.ones(8), net.weight(8))
    x = net.Add(x, linear(net, gelu(net, linear(net, n, 8, 16)), 16, 8))
    return net.model(net.MatMul(x, net.Transpose(table, perm=[1, 0])))  # tied weights


def mean_pool():
    net = Net(18)
    ids = net.input("ids", net.rng.integers(0, 9, (3, 5)), ["N", "S"])
    mask = net.Unsqueeze(net.Cast(net.Greater(ids, np.array(2)), to=TensorProto.FLOAT), ints(2))
    x = net.Mul(net.Gather(net.weight(9, 6), ids), mask)
    count = net.Clip(net.ReduceSum(mask, ints(1), keepdims=0), np.ones((), "f4"))
    pooled = net.Div(net.ReduceSum(x, ints(1), keepdims=0), count)
    norm = net.ReduceL2(pooled, ints(1))
    return net.model(net.Div(pooled, net.Add(norm, np.full((), 1e-6, np.float32))))


def deep_fm():
    net = Net()
    ids = net.input("ids", net.rng.integers(0, 12, (4, 3)), ["N", 3])
    dense = net.input("dense", net.normal(4, 2), ["N", 2])
    e = net.Gather(net.weight(12, 5), ids)
    first = net.ReduceSum(net.Squeeze(net.Gather(net.weight(12, 1), ids), ints(2)), ints(1))
    total = net.ReduceSum(e, ints(1), keepdims=0)
    squares = net.ReduceSum(net.Mul(e, e), ints(1), keepdims=0)
    pairs = net.ReduceSum(net.Sub(net.Mul(total, total), squares), ints(1))
    deep = net.Concat(net.Reshape(e, ints(-1, 15)), dense, axis=1)
    deep = linear(net, net.PRelu(linear(net, deep, 17, 8), net.ones(8)), 8, 1)
    half = net.Mul(pairs, np.full((), 0.5, np.float32))
    return net.model(net.Sigmoid(net.Add(net.Add(first, half), deep)))


MODELS = {
    "an MLP": mlp,
    "an MLP of opset 9": lambda: mlp(9),
    "a residual conv net": lambda: conv_net(0),
    "a conv net with BatchNorm in training mode": lambda: conv_net(1),
    "a depthwise block with squeeze and excite": mobile,
    "a U-Net with ConvTranspose and Resize": u_net,
    "a bidirectional LSTM classifier": lstm_classifier,
    "a GRU tagger": gru_tagger,
    "a transformer encoder block": encoder,
    "a GPT block with tied weights": gpt,
    "embeddings, pooled and normalised": mean_pool,
    "a factorisation machine with a deep part": deep_fm,
}


@pytest.mark.parametrize("what", MODELS)
def test_gradients(what):
    model, feeds = MODELS[what]()
    gradients = {}
    for ops in ("standard", "fused"):
        g = vjp(model, ops=ops)
        onnx.checker.check_model(g, full_check=ops == "standard")
        run = evaluator(g) if ops == "standard" else fused_evaluator(g)
        cotangents = _cotangents(model, evaluator(model)(feeds))
        names = [o.name for o in g.graph.output]
        gradients[ops] = dict(zip(names, run({**feeds, **cotangents}), strict=True))
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    wrt = [n.removesuffix("_grad") for n in gradients["standard"] if n.endswith("_grad")]
    assert wrt
    _compare_with_differences(model, feeds, cotangents, wrt, weights, gradients["standard"])
    for name in wrt:
        a, b = (gradients[ops][f"{name}_grad"] for ops in ("fused", "standard"))
        np.testing.assert_allclose(a, b, atol=2e-5 * max(1.0, np.abs(b).max()), rtol=1e-4)


def _cotangents(model, outputs):
    rng = np.random.default_rng(1)
    names = [o.name for o in model.graph.output]
    return {
        f"{n}_grad": rng.standard_normal(y.shape).astype(np.float32)
        for n, y in zip(names, outputs, strict=True)
    }


def _compare_with_differences(model, feeds, cotangents, wrt, weights, gradients):
    """Along one random direction per tensor, in float: to 1 % of the gradient's own size."""
    moved = vjp(model, wrt=wrt, ops="standard", parameters="inputs")
    del moved.graph.output[len(model.graph.output) :]
    session = make_session(moved)
    needed = {i.name for i in session.get_inputs()}
    fixed = {k: v for k, v in {**feeds, **cotangents, **weights}.items() if k in needed}
    rng = np.random.default_rng(2)

    def projected(name, value):
        outputs = session.run(None, {**fixed, name: value})
        pairs = zip(model.graph.output, outputs, strict=True)
        return sum(float(np.sum(y.astype(np.float64) * cotangents[f"{o.name}_grad"]))
                   for o, y in pairs)  # fmt: skip

    for name in wrt:
        w, g = weights[name], gradients[f"{name}_grad"].astype(np.float64)
        u = rng.standard_normal(w.shape)
        u += g / max(np.sqrt(np.mean(g**2)), 1e-9)  # mostly along the gradient: no cancellation
        u *= np.sqrt(np.mean(w.astype(np.float64) ** 2))
        errors = []
        for step in (3e-2, 1e-2, 3e-3, 1e-3):
            high, low = ((w + s * step * u).astype(np.float32) for s in (1, -1))
            expected = (projected(name, high) - projected(name, low)) / (2 * step)
            found = float(np.sum(g * u))
            errors.append(abs(found - expected) / max(1e-2, abs(found), abs(expected)))
        assert min(errors) < 1e-2, f"{name} {w.shape}: off by {min(errors):.1%}"


# onnxruntime's LSTM and GRU end the process for an empty batch, before any gradient.
EMPTY = [(what, "fused") for what in MODELS if "LSTM" not in what and "GRU" not in what]
# Its Conv never ends for 0 channels, which is how standard operators see an empty batch.
EMPTY += [(what, "standard") for what, _ in EMPTY if not re.search("conv|depthwise|U-Net", what)]


@pytest.mark.parametrize(("what", "ops"), EMPTY)
def test_a_batch_of_no_samples_has_zero_gradients(what, ops):
    model, feeds = MODELS[what]()
    feeds = {k: v[:0] for k, v in feeds.items()}
    outputs = make_session(model).run(None, feeds)
    cotangents = _cotangents(model, outputs)
    g = vjp(model, ops=ops)
    results = make_session(g).run(None, {**feeds, **cotangents})
    for info, value in zip(g.graph.output, results, strict=True):
        if info.name.endswith("_grad"):
            assert not np.any(value), info.name


def _in_half(model):
    """The same model with float16 in the place of float."""
    half = onnx.ModelProto()
    half.CopyFrom(model)
    del half.graph.value_info[:]
    for tensor in half.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    infos = [i.type.tensor_type for i in (*half.graph.input, *half.graph.output)]
    for kind in (k for k in infos if k.elem_type == TensorProto.FLOAT):
        kind.elem_type = TensorProto.FLOAT16
    casts = [a for n in half.graph.node for a in n.attribute if a.name == "to"]
    for cast in (c for c in casts if c.i == TensorProto.FLOAT):
        cast.i = TensorProto.FLOAT16
    return half


# without those that need a kernel that onnxruntime lacks for float16, or numbers that float16 does not have
HALF = [what for what in MODELS if "U-Net" not in what and "GPT" not in what]


@pytest.mark.parametrize("what", HALF)
def test_models_in_half_precision(what):
    model, feeds = MODELS[what]()
    half = _in_half(model)
    given = {k: v.astype(np.float16) if v.dtype == np.float32 else v for k, v in feeds.items()}
    cotangents = _cotangents(model, make_session(half).run(None, given))
    exact = vjp(model, ops="standard")
    expected = make_session(exact).run(None, {**feeds, **cotangents})
    cotangents = {k: v.astype(np.float16) for k, v in cotangents.items()}
    wide = [o.name for o in exact.graph.output]
    g = vjp(half, wrt=[n.removesuffix("_grad") for n in wide if n.endswith("_grad")])
    results = make_session(g).run(None, {**given, **cotangents})
    pairs = list(zip(wide, results, expected, strict=True))
    pairs = [(g, e) for name, g, e in pairs if name.endswith("_grad")]
    whole = np.sqrt(sum(np.sum(e**2) for _, e in pairs))
    for got, wanted in pairs:
        assert got.dtype == np.float16
        assert np.linalg.norm(got.astype(np.float32) - wanted) < 1e-2 * whole
