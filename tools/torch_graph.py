"""Runs ONNX graphs in PyTorch, in any precision, with autograd: the judge of models without reference gradients.

    outputs = run(model, feeds, leaves, torch.float64)

An operator is a function of its attributes and inputs, written from ONNX's text and independent of onnxgrad's rules;
what the table lacks is refused by name. Older spellings (axes as attributes, …) are understood from opset 9 on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper

INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)


class Missing(Exception):
    """The table has no such operator, or not this form of it."""


def run(
    model: onnx.ModelProto,
    feeds: dict[str, np.ndarray],
    leaves: dict[str, torch.Tensor],
    dtype: torch.dtype,
) -> dict[str, torch.Tensor]:
    """Return the outputs; `leaves` take the place of initializers and constants of their names."""
    graph = _Graph(model, dtype, leaves)
    return graph.run(model.graph, {n: graph.tensor(a) for n, a in feeds.items()})


class _Graph:
    def __init__(self, model: onnx.ModelProto, dtype: torch.dtype, leaves):
        self.dtype, self.leaves = dtype, leaves
        self.opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))

    def tensor(self, array: np.ndarray) -> torch.Tensor:
        value = torch.from_numpy(np.array(array))
        return value.to(self.dtype) if value.is_floating_point() else value

    def run(self, graph: onnx.GraphProto, known: dict[str, torch.Tensor]) -> dict:
        values = {"": None, **known}
        for t in graph.initializer:
            values[t.name] = self._own(t.name, t)
        for node in graph.node:
            results = self._node(node, values)
            results = results if isinstance(results, (tuple, list)) else (results,)
            values.update(zip(node.output, results, strict=False))
        return {o.name: values[o.name] for o in graph.output}

    def _own(self, name: str, tensor: onnx.TensorProto) -> torch.Tensor:
        if name in self.leaves:
            return self.leaves[name]
        return self.tensor(numpy_helper.to_array(tensor))

    def _node(self, node: onnx.NodeProto, values: dict) -> Any:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Constant":
            return self._constant(node, attributes)
        if node.op_type == "If":
            taken = "then_branch" if bool(values[node.input[0]]) else "else_branch"
            return tuple(self.run(attributes[taken], values).values())
        if node.op_type == "Loop":
            return self._loop(node, attributes, values)
        function = TABLE.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if function is None:
            raise Missing(f"{node.domain or 'ai.onnx'}.{node.op_type}")
        attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes.items()}
        return function(self, attributes, *(values[name] for name in node.input))

    def _constant(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> torch.Tensor:
        if "value" in attributes:
            return self._own(node.output[0], attributes["value"])
        kind, value = next(iter(attributes.items()))
        array = np.asarray(value, np.int64 if "int" in kind else np.float32)
        return self.leaves.get(node.output[0], self.tensor(array))

    def _loop(self, node: onnx.NodeProto, attributes: dict[str, Any], values: dict) -> tuple:
        body = attributes["body"]
        count = values[node.input[0]]
        go = values[node.input[1]] if len(node.input) > 1 else None
        state = [values[name] for name in node.input[2:]]
        go, rows, step = True if go is None else bool(go), [], 0
        while go and (count is None or step < int(count)):
            given = (torch.tensor(step), torch.tensor(True), *state)
            named = {i.name: v for i, v in zip(body.input, given, strict=True)}
            go, *results = self.run(body, {**values, **named}).values()
            state, step = results[: len(state)], step + 1
            rows.append(results[len(state) :])
        return (*state, *(torch.stack(column) for column in zip(*rows, strict=True)))


def _ints(value: Any) -> list[int] | None:
    if value is None or isinstance(value, int):
        return None if value is None else [value]
    return [int(i) for i in (value.reshape(-1).tolist() if torch.is_tensor(value) else value)]


def _axes(given: tuple, attributes: dict[str, Any], at: int = 0) -> list[int] | None:
    value = given[at] if len(given) > at else attributes.get("axes")
    return _ints(value)


# ---- families


def _unary(function: Callable) -> Callable:
    return lambda g, a, x: function(x)


def _binary(function: Callable) -> Callable:
    return lambda g, a, x, y: function(x, y)


def _reduce(function: Callable) -> Callable:
    def apply(g, a, x, *given):
        axes = _axes(given, a)
        if not axes and a.get("noop_with_empty_axes"):
            return x
        axes = list(range(x.dim())) if not axes else sorted(i % x.dim() for i in axes)
        return function(x, tuple(axes), bool(a.get("keepdims", 1)))

    return apply


def _product(x, axes, keep):
    for axis in reversed(axes):
        x = x.prod(axis, keepdim=keep)
    return x


def _div(g, a, x, y):
    return torch.div(x, y, rounding_mode=None if x.is_floating_point() else "trunc")


def _cast(g, a, x):
    kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(a["to"]))
    if kind.kind == "f":
        return x.to(g.dtype)
    return x.to(torch.from_numpy(np.zeros(1, kind)).dtype)


def _reshape(g, a, x, shape):
    sizes = _ints(shape)
    if not a.get("allowzero"):
        sizes = [x.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    return x.reshape(sizes)


def _squeeze(g, a, x, *given):
    axes = _axes(given, a)
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _unsqueeze(g, a, x, *given):
    axes = _axes(given, a)
    for axis in sorted(i % (x.dim() + len(axes)) for i in axes):
        x = x.unsqueeze(axis)
    return x


def _slice(g, a, x, *given):
    if given:
        starts, ends = _ints(given[0]), _ints(given[1])
        axes = _ints(given[2]) if len(given) > 2 and given[2] is not None else None
        steps = _ints(given[3]) if len(given) > 3 else None
    else:
        starts, ends, axes, steps = a["starts"], a["ends"], a.get("axes"), None
    axes = list(range(len(starts))) if axes is None else axes
    for i, axis in enumerate(axes):
        step = 1 if steps is None else steps[i]
        picked = range(x.shape[axis])[slice(starts[i], _end(ends[i], step), step)]
        x = x.index_select(axis, torch.tensor(list(picked), dtype=torch.int64))
    return x


def _end(end: int, step: int) -> int | None:
    """A huge negative end of a backward slice means: through the first element."""
    return None if step < 0 and end < -(2**30) else end


def _gather(g, a, x, indices):
    axis = a.get("axis", 0) % x.dim()
    flat = indices.reshape(-1).long()
    flat = torch.where(flat < 0, flat + x.shape[axis], flat)
    picked = x.index_select(axis, flat)
    return picked.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def _expand(g, a, x, shape):
    return x.expand(torch.broadcast_shapes(tuple(x.shape), tuple(_ints(shape))))


def _split(g, a, x, *given):
    axis = a.get("axis", 0)
    sizes = _ints(given[0]) if given else a.get("split")
    if sizes is None:
        raise Missing("Split into a number of equal parts")
    return x.split(list(sizes), axis)


def _constant_of_shape(g, a, shape):
    value = numpy_helper.to_array(a["value"]) if "value" in a else np.zeros(1, np.float32)
    return g.tensor(value).reshape(()).expand(_ints(shape)).clone()


def _softmax(g, a, x, function=F.softmax):
    if g.opset >= 13:
        return function(x, a.get("axis", -1))
    axis = a.get("axis", 1) % x.dim()
    rows = math.prod(x.shape[:axis])
    return function(x.reshape(rows, -1), 1).reshape(x.shape)


def _clip(g, a, x, *given):
    low, high = (*given, None, None)[:2] if given else (a.get("min"), a.get("max"))
    return x.clamp(*(None if v is None else float(v) for v in (low, high)))


def _pow(g, a, x, y):
    return torch.pow(x, y.to(x.dtype))


def _pad(g, a, x, *given):
    mode = a.get("mode", "constant")
    pads = _ints(given[0]) if given else a["pads"]
    if len(given) > 2 and given[2] is not None:
        raise Missing("Pad with axes")
    value = float(given[1]) if len(given) > 1 and given[1] is not None else a.get("value", 0.0)
    rank = x.dim()
    pairs = [(pads[i], pads[i + rank]) for i in range(rank)]
    if mode == "constant":
        return F.pad(x, [n for pair in reversed(pairs) for n in pair], "constant", value)
    for axis, (before, after) in enumerate(pairs):
        size = x.shape[axis]
        where = np.pad(
            np.arange(size), (before, after), {"reflect": "reflect", "edge": "edge"}[mode]
        )
        x = x.index_select(axis, torch.tensor(where))
    return x


# ---- windows


def _same(x, kernel, a, rank):
    """The padding of auto_pad, as amounts before and after each spatial axis."""
    strides, dilations = a.get("strides", [1] * rank), a.get("dilations", [1] * rank)
    auto = a.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", "VALID"):
        pads = a.get("pads", [0] * 2 * rank) if auto == "NOTSET" else [0] * 2 * rank
        return strides, dilations, list(zip(pads[:rank], pads[rank:], strict=True))
    pairs = []
    for i in range(rank):
        size = x.shape[2 + i]
        span = (kernel[i] - 1) * dilations[i] + 1
        total = max((math.ceil(size / strides[i]) - 1) * strides[i] + span - size, 0)
        less, more = total // 2, total - total // 2
        pairs.append((less, more) if auto == "SAME_UPPER" else (more, less))
    return strides, dilations, pairs


def _padded(x, pairs, value=0.0):
    return F.pad(x, [n for pair in reversed(pairs) for n in pair], "constant", value)


def _conv(g, a, x, w, b=None):
    rank = x.dim() - 2
    strides, dilations, pairs = _same(x, w.shape[2:], a, rank)
    function = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    return function(_padded(x, pairs), w, b, strides, 0, dilations, a.get("group", 1))


def _conv_transpose(g, a, x, w, b=None):
    rank = x.dim() - 2
    if "output_shape" in a or a.get("auto_pad", "NOTSET") != "NOTSET":
        raise Missing("ConvTranspose with output_shape or auto_pad")
    pads = a.get("pads", [0] * 2 * rank)
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    ones = [1] * rank
    y = function(x, w, b, a.get("strides", ones), 0, a.get("output_padding", [0] * rank),
                 a.get("group", 1), a.get("dilations", ones))  # fmt: skip
    for i in range(rank):
        y = y.narrow(2 + i, pads[i], y.shape[2 + i] - pads[i] - pads[i + rank])
    return y


def _windows(x, kernel, a, fill):
    """[N, C, out..., kernel...] views of the padded input; ceil_mode pads what is missing."""
    rank = len(kernel)
    strides, dilations, pairs = _same(x, kernel, a, rank)
    for i in range(rank) if a.get("ceil_mode") else ():
        span = (kernel[i] - 1) * dilations[i] + 1
        size = x.shape[2 + i] + sum(pairs[i])
        out = math.ceil((size - span) / strides[i]) + 1
        if (out - 1) * strides[i] >= x.shape[2 + i] + pairs[i][0]:
            out -= 1
        pairs[i] = (pairs[i][0], pairs[i][1] + max((out - 1) * strides[i] + span - size, 0))
    x = _padded(x, pairs, fill)
    for i in range(rank):
        span = (kernel[i] - 1) * dilations[i] + 1
        x = x.unfold(2 + i, span, strides[i])[..., :: dilations[i]]
    return x


def _max_pool(g, a, x):
    kernel = a["kernel_shape"]
    return _windows(x, kernel, a, -math.inf).flatten(-len(kernel)).max(-1).values


def _average_pool(g, a, x):
    kernel = a["kernel_shape"]
    tail = tuple(range(-len(kernel), 0))
    total = _windows(x, kernel, a, 0.0).sum(tail)
    if a.get("count_include_pad"):
        if a.get("ceil_mode"):
            raise Missing("AveragePool with ceil_mode that counts its padding")
        return total / math.prod(kernel)
    return total / _windows(torch.ones_like(x), kernel, a, 0.0).sum(tail)


def _resize(g, a, x, roi=None, scales=None, sizes=None):
    mode, where = a.get("mode", "nearest"), a.get("coordinate_transformation_mode", "half_pixel")
    if g.opset < 11:
        where, scales = "asymmetric", roi
    if sizes is not None:
        target = _ints(sizes)
    else:
        target = [math.floor(n * float(s)) for n, s in zip(x.shape, scales, strict=True)]
    given = None if sizes is not None else [float(s) for s in scales]
    for axis, size in enumerate(target):
        if size != x.shape[axis]:
            scale = size / x.shape[axis] if given is None else given[axis]
            x = _resize_axis(x, axis, size, scale, mode, where, a.get("nearest_mode"), g.opset)
    return x


def _resize_axis(x, axis, size, scale, mode, where, rounding, opset):
    """Along one axis: every mode of ONNX that is nearest or linear is separable."""
    n, i = x.shape[axis], torch.arange(size, dtype=torch.float64)
    at = {
        "half_pixel": lambda: (i + 0.5) / scale - 0.5,
        "pytorch_half_pixel": lambda: (i + 0.5) / scale - 0.5 if size > 1 else i * 0,
        "asymmetric": lambda: i / scale,
        "align_corners": lambda: i * (n - 1) / max(size - 1, 1),
    }[where]()
    if mode == "nearest":
        rounded = {
            "floor": torch.floor, "ceil": torch.ceil,
            "round_prefer_ceil": lambda t: torch.floor(t + 0.5),
        }.get(rounding or ("floor" if opset < 11 else ""), lambda t: torch.ceil(t - 0.5))(at)  # fmt: skip
        return x.index_select(axis, rounded.clamp(0, n - 1).long())
    if mode != "linear":
        raise Missing(f"Resize by {mode}")
    at = at.clamp(0, n - 1)
    low = at.floor().clamp(max=max(n - 2, 0)).long()
    part = (at - low).to(x.dtype).reshape([-1] + [1] * (x.dim() - 1 - axis))
    high = (low + 1).clamp(max=n - 1)
    return x.index_select(axis, low) * (1 - part) + x.index_select(axis, high) * part


# ---- layers


def _batch_norm(g, a, x, scale, b, mean, var):
    if a.get("training_mode"):
        return F.batch_norm(x, None, None, scale, b, True, 0.0, a.get("epsilon", 1e-5))
    return F.batch_norm(x, mean, var, scale, b, False, 0.0, a.get("epsilon", 1e-5))


def _layer_norm(g, a, x, scale, b=None):
    axis = a.get("axis", -1) % x.dim()
    return F.layer_norm(x, x.shape[axis:], scale, b, a.get("epsilon", 1e-5))


def _gemm(g, a, x, w, c=None):
    x, w = x.T if a.get("transA") else x, w.T if a.get("transB") else w
    y = a.get("alpha", 1.0) * (x @ w)
    return y if c is None else y + a.get("beta", 1.0) * c


def _directions(a, count, x, cell):
    """Run `cell(direction, x)` for each direction; Y [S, D, N, H] and the last states."""
    kind = a.get("direction", "forward")
    kind = kind.decode() if isinstance(kind, bytes) else kind
    parts = []
    for d in range(count):
        flip = kind == "reverse" or d == 1
        y, *last = cell(d, x.flip(0) if flip else x)
        parts.append((y.flip(0) if flip else y, *last))
    columns = list(zip(*parts, strict=True))
    return (torch.stack(columns[0], 1), *(torch.stack(c) for c in columns[1:]))


def _expect_plain(a, lengths):
    odd = [n for n in ("activations", "clip", "input_forget", "layout") if a.get(n)]
    if odd or (lengths is not None and len(set(lengths.tolist())) > 1):
        raise Missing(f"a recurrent layer with {', '.join(odd) or 'several lengths'}")


def _lstm(g, a, x, w, r, b=None, lengths=None, h0=None, c0=None, p=None):
    """Gates i o f c."""
    _expect_plain(a, lengths)
    hidden = r.shape[2]

    def cell(d, x):
        zero = x.new_zeros(x.shape[1], hidden)
        h, c = (zero if v is None else v[d] for v in (h0, c0))
        bias = 0 if b is None else b[d, : 4 * hidden] + b[d, 4 * hidden :]
        rows = []
        for t in range(x.shape[0]):
            i, o, f, n = (x[t] @ w[d].T + h @ r[d].T + bias).split(hidden, 1)
            if p is not None:
                pi, po, pf = p[d].split(hidden)
                i, f = i + pi * c, f + pf * c
            c = f.sigmoid() * c + i.sigmoid() * n.tanh()
            h = (o if p is None else o + po * c).sigmoid() * c.tanh()
            rows.append(h)
        return torch.stack(rows), h, c

    return _directions(a, w.shape[0], x, cell)


def _gru(g, a, x, w, r, b=None, lengths=None, h0=None):
    """Gates z r h."""
    _expect_plain({**a, "layout": a.get("layout")}, lengths)
    hidden = r.shape[2]

    def cell(d, x):
        h = x.new_zeros(x.shape[1], hidden) if h0 is None else h0[d]
        wb, rb = (x.new_zeros(2, 3 * hidden) if b is None else b[d].reshape(2, -1)).unbind()
        rows = []
        for t in range(x.shape[0]):
            xz, xr, xh = (x[t] @ w[d].T + wb).split(hidden, 1)
            rz, rr, rh = r[d].split(hidden)
            bz, br, bh = rb.split(hidden)
            z, reset = (xz + h @ rz.T + bz).sigmoid(), (xr + h @ rr.T + br).sigmoid()
            if a.get("linear_before_reset"):
                n = (xh + reset * (h @ rh.T + bh)).tanh()
            else:
                n = (xh + (reset * h) @ rh.T + bh).tanh()
            h = (1 - z) * n + z * h
            rows.append(h)
        return torch.stack(rows), h

    return _directions(a, w.shape[0], x, cell)


def _reverse_sequence(g, a, x, lengths):
    time, batch = a.get("time_axis", 0), a.get("batch_axis", 1)
    x = x.movedim((batch, time), (0, 1))
    rows = [
        torch.cat([row[: int(n)].flip(0), row[int(n) :]]) for row, n in zip(x, lengths, strict=True)
    ]
    return torch.stack(rows).movedim((0, 1), (batch, time))


def _top_k(g, a, x, k):
    return tuple(torch.topk(x, int(k), a.get("axis", -1), bool(a.get("largest", 1))))


def _scatter_elements(g, a, x, indices, updates):
    axis, how = a.get("axis", 0), a.get("reduction", "none")
    indices = torch.where(indices < 0, indices + x.shape[axis], indices).long()
    if how == "none":
        return x.scatter(axis, indices, updates)
    if how != "add":
        raise Missing(f"ScatterElements with {how}")
    return x.scatter_add(axis, indices, updates)


def _quantize(g, a, x, scale, zero=None):
    """Straight through: the integers stay floats that carry the gradient, within the range."""
    axis = a.get("axis", 1)
    low, high = (0, 255) if zero is None or zero.dtype == torch.uint8 else (-128, 127)
    scale, zero = _along(scale, x, axis), 0 if zero is None else _along(zero.to(x.dtype), x, axis)
    q = x / scale
    return (q + (q.round() - q).detach() + zero).clamp(low, high)


def _dequantize(g, a, x, scale, zero=None):
    axis, x = a.get("axis", 1), x.to(scale.dtype)
    zero = 0 if zero is None else _along(zero.to(scale.dtype), x, axis)
    return (x - zero) * _along(scale, x, axis)


def _along(v, x, axis):
    if v.dim() == 0 or v.numel() == 1:
        return v.reshape(())
    return v.reshape([-1 if i == axis % x.dim() else 1 for i in range(x.dim())])


def _where(g, a, c, x, y):
    return torch.where(c, x, y)


TABLE: dict[str, Callable] = {
    "Abs": _unary(torch.abs), "Add": _binary(torch.add), "And": _binary(torch.logical_and),
    "ArgMax": lambda g, a, x: x.argmax(a.get("axis", 0), bool(a.get("keepdims", 1))),
    "AveragePool": _average_pool, "BatchNormalization": _batch_norm, "Cast": _cast,
    "Ceil": _unary(torch.ceil), "Clip": _clip, "Concat": lambda g, a, *x: torch.cat(x, a["axis"]),
    "ConstantOfShape": _constant_of_shape, "Conv": _conv, "ConvTranspose": _conv_transpose,
    "Cos": _unary(torch.cos), "DequantizeLinear": _dequantize, "Div": _div,
    "Dropout": lambda g, a, x, *_: x, "Einsum": lambda g, a, *x: torch.einsum(a["equation"], *x),
    "Elu": lambda g, a, x: F.elu(x, a.get("alpha", 1.0)), "Equal": _binary(torch.eq),
    "Erf": _unary(torch.erf), "Exp": _unary(torch.exp), "Expand": _expand,
    "Flatten": lambda g, a, x: x.reshape(math.prod(x.shape[: a.get("axis", 1)]), -1),
    "Floor": _unary(torch.floor), "GRU": _gru, "Gather": _gather, "Gemm": _gemm,
    "GlobalAveragePool": lambda g, a, x: x.mean(tuple(range(2, x.dim())), keepdim=True),
    "GlobalMaxPool": lambda g, a, x: x.amax(tuple(range(2, x.dim())), keepdim=True),
    "Greater": _binary(torch.gt), "GreaterOrEqual": _binary(torch.ge),
    "HardSigmoid": lambda g, a, x: (a.get("alpha", 0.2) * x + a.get("beta", 0.5)).clamp(0, 1),
    "HardSwish": _unary(F.hardswish), "Identity": _unary(lambda x: x), "LSTM": _lstm,
    "LayerNormalization": _layer_norm, "LeakyRelu": lambda g, a, x: F.leaky_relu(x, a.get("alpha", 0.01)),
    "Less": _binary(torch.lt), "LessOrEqual": _binary(torch.le), "Log": _unary(torch.log),
    "LogSoftmax": lambda g, a, x: _softmax(g, a, x, F.log_softmax), "MatMul": _binary(torch.matmul),
    "Max": lambda g, a, *x: torch.stack(torch.broadcast_tensors(*x)).amax(0), "MaxPool": _max_pool,
    "Min": lambda g, a, *x: torch.stack(torch.broadcast_tensors(*x)).amin(0),
    "Mod": lambda g, a, x, y: torch.fmod(x, y) if a.get("fmod") else torch.remainder(x, y),
    "Mul": _binary(torch.mul), "Neg": _unary(torch.neg), "Not": _unary(torch.logical_not),
    "Or": _binary(torch.logical_or), "PRelu": lambda g, a, x, s: torch.where(x < 0, x * s, x),
    "Pad": _pad, "Pow": _pow, "QuantizeLinear": _quantize,
    "Range": lambda g, a, low, high, step: torch.arange(low.item(), high.item(), step.item(), dtype=low.dtype),
    "Reciprocal": _unary(torch.reciprocal), "ReduceL2": _reduce(lambda x, i, k: x.norm(2, i, k)),
    "ReduceMax": _reduce(torch.amax), "ReduceMean": _reduce(torch.mean), "ReduceMin": _reduce(torch.amin),
    "ReduceProd": _reduce(_product), "ReduceSum": _reduce(torch.sum),
    "Relu": _unary(F.relu), "Reshape": _reshape, "Resize": _resize, "ReverseSequence": _reverse_sequence,
    "ScatterElements": _scatter_elements, "Selu": _unary(F.selu), "Sigmoid": _unary(torch.sigmoid),
    "Shape": lambda g, a, x: torch.tensor(x.shape[a.get("start", 0) : a.get("end")], dtype=torch.int64),
    "Sign": _unary(torch.sign), "Sin": _unary(torch.sin),
    "Size": lambda g, a, x: torch.tensor(x.numel()), "Slice": _slice, "Softmax": _softmax,
    "Softplus": _unary(F.softplus), "Split": _split, "Sqrt": _unary(torch.sqrt), "Squeeze": _squeeze,
    "Sub": _binary(torch.sub), "Sum": lambda g, a, *x: sum(x[1:], x[0]), "Tanh": _unary(torch.tanh),
    "Tile": lambda g, a, x, n: x.repeat(_ints(n)), "TopK": _top_k,
    "Transpose": lambda g, a, x: x.permute(a.get("perm", list(range(x.dim()))[::-1])),
    "Unsqueeze": _unsqueeze, "Where": _where,
}  # fmt: skip
