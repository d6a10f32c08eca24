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
from torch_layers import LAYERS, Missing, ints
from torch_moves import MOVES

INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)


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
        if node.op_type == "Scan":
            return self._scan(node, attributes, values)
        function = TABLE.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if function is None:
            raise Missing(f"{node.domain or 'ai.onnx'}.{node.op_type}")
        self.outputs = len(node.output)
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

    def _scan(self, node: onnx.NodeProto, attributes: dict[str, Any], values: dict) -> tuple:
        """Opset 9 and later: states, then sequences along their axes, forwards or backwards."""
        body, count = attributes["body"], attributes["num_scan_inputs"]
        given = [values[name] for name in node.input]
        state, columns = given[:-count], given[-count:]
        kept = len(body.output) - len(state)
        axes = attributes.get("scan_input_axes", [0] * count)
        turned = attributes.get("scan_input_directions", [0] * count)
        columns = [
            (x.flip(i) if back else x).movedim(i, 0)
            for x, i, back in zip(columns, axes, turned, strict=True)
        ]
        rows = []
        for step in range(len(columns[0])):
            parts = (*state, *(column[step] for column in columns))
            named = {i.name: v for i, v in zip(body.input, parts, strict=True)}
            results = list(self.run(body, {**values, **named}).values())
            state = results[: len(state)]
            rows.append(results[len(state) :])
        axes = attributes.get("scan_output_axes", [0] * kept)
        turned = attributes.get("scan_output_directions", [0] * kept)
        made = [
            (torch.stack(column).flip(0) if back else torch.stack(column)).movedim(0, i)
            for column, i, back in zip(zip(*rows, strict=True), axes, turned, strict=True)
        ]
        return (*state, *made)


def _axes(given: tuple, attributes: dict[str, Any], at: int = 0) -> list[int] | None:
    value = given[at] if len(given) > at else attributes.get("axes")
    return ints(value)


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
    sizes = ints(shape)
    if not a.get("allowzero"):
        sizes = [x.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    return torch.reshape(x, sizes)


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
        starts, ends = ints(given[0]), ints(given[1])
        axes = ints(given[2]) if len(given) > 2 and given[2] is not None else None
        steps = ints(given[3]) if len(given) > 3 else None
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
    return picked.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def _expand(g, a, x, shape):
    return x.expand(torch.broadcast_shapes(tuple(x.shape), tuple(ints(shape))))


def _split(g, a, x, *given):
    axis = a.get("axis", 0)
    sizes = ints(given[0]) if given else a.get("split")
    if sizes is None:  # as equal as they can be, the last one smaller
        size = math.ceil(x.shape[axis] / g.outputs)
        sizes = [size] * (g.outputs - 1) + [x.shape[axis] - size * (g.outputs - 1)]
    return x.split(list(sizes), axis)


def _constant_of_shape(g, a, shape):
    value = numpy_helper.to_array(a["value"]) if "value" in a else np.zeros(1, np.float32)
    return g.tensor(value).reshape(()).expand(ints(shape)).clone()


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
    pads = ints(given[0]) if given else a["pads"]
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


def _hard_swish(x):
    """With 1/6 as a float, which is what a graph can hold of it."""
    return x * (float(np.float32(1 / 6)) * x + 0.5).clamp(0, 1)


def _sigmoid(x):
    """By its logarithm: autograd's own slope y·(1 - y) loses its digits where y is nearly 1, even in float64."""
    return torch.exp(-F.softplus(-x, threshold=80))


def _where(g, a, c, x, y):
    return torch.where(c, x, y)


TABLE: dict[str, Callable] = {
    **LAYERS,
    **MOVES,
    "Abs": _unary(torch.abs), "Add": _binary(torch.add), "And": _binary(torch.logical_and),
    "ArgMax": lambda g, a, x: x.argmax(a.get("axis", 0), bool(a.get("keepdims", 1))),
    "Cast": _cast,
    "Ceil": _unary(torch.ceil), "Clip": _clip, "Concat": lambda g, a, *x: torch.cat(x, a["axis"]),
    "ConstantOfShape": _constant_of_shape,
    "Cos": _unary(torch.cos), "Div": _div,
    "Dropout": lambda g, a, x, *_: x, "Einsum": lambda g, a, *x: torch.einsum(a["equation"], *x),
    "Elu": lambda g, a, x: F.elu(x, a.get("alpha", 1.0)), "Equal": _binary(torch.eq),
    "Erf": _unary(torch.erf), "Exp": _unary(torch.exp), "Expand": _expand,
    "Flatten": lambda g, a, x: x.reshape(math.prod(x.shape[: a.get("axis", 1)]), -1),
    "Floor": _unary(torch.floor), "Gather": _gather,
    "GlobalAveragePool": lambda g, a, x: x.mean(tuple(range(2, x.dim())), keepdim=True),
    "GlobalMaxPool": lambda g, a, x: x.amax(tuple(range(2, x.dim())), keepdim=True),
    "Greater": _binary(torch.gt), "GreaterOrEqual": _binary(torch.ge),
    "HardSigmoid": lambda g, a, x: (a.get("alpha", 0.2) * x + a.get("beta", 0.5)).clamp(0, 1),
    "HardSwish": _unary(_hard_swish), "Identity": _unary(lambda x: x),
    "LeakyRelu": lambda g, a, x: F.leaky_relu(x, a.get("alpha", 0.01)),
    "Less": _binary(torch.lt), "LessOrEqual": _binary(torch.le), "Log": _unary(torch.log),
    "LogSoftmax": lambda g, a, x: _softmax(g, a, x, F.log_softmax), "MatMul": _binary(torch.matmul),
    "Max": lambda g, a, *x: torch.stack(torch.broadcast_tensors(*x)).amax(0),
    "Min": lambda g, a, *x: torch.stack(torch.broadcast_tensors(*x)).amin(0),
    "Mod": lambda g, a, x, y: torch.fmod(x, y) if a.get("fmod") else torch.remainder(x, y),
    "Mul": _binary(torch.mul), "Neg": _unary(torch.neg), "NonZero": _unary(lambda x: x.nonzero().T),
    "Not": _unary(torch.logical_not),
    "Or": _binary(torch.logical_or), "PRelu": lambda g, a, x, s: torch.where(x < 0, x * s, x),
    "Pad": _pad, "Pow": _pow,
    "Range": lambda g, a, low, high, step: torch.arange(low.item(), high.item(), step.item(), dtype=low.dtype),
    "Reciprocal": _unary(torch.reciprocal), "ReduceL2": _reduce(lambda x, i, k: x.norm(2, i, k)),
    "ReduceMax": _reduce(torch.amax), "ReduceMean": _reduce(torch.mean), "ReduceMin": _reduce(torch.amin),
    "ReduceProd": _reduce(_product), "ReduceSum": _reduce(torch.sum),
    "Relu": _unary(F.relu), "Reshape": _reshape,
    "Selu": _unary(F.selu), "Sigmoid": _unary(_sigmoid),
    "Shape": lambda g, a, x: torch.tensor(x.shape[a.get("start", 0) : a.get("end")], dtype=torch.int64),
    "Sign": _unary(torch.sign), "Sin": _unary(torch.sin),
    "Size": lambda g, a, x: torch.tensor(x.numel()), "Slice": _slice, "Softmax": _softmax,
    "Softplus": _unary(F.softplus), "Split": _split, "Sqrt": _unary(torch.sqrt), "Squeeze": _squeeze,
    "Sub": _binary(torch.sub), "Sum": lambda g, a, *x: sum(x[1:], x[0]), "Tanh": _unary(torch.tanh),
    "Tile": lambda g, a, x, n: x.repeat(ints(n)),
    "Transpose": lambda g, a, x: x.permute(a.get("perm", list(range(x.dim()))[::-1])),
    "Unsqueeze": _unsqueeze, "Where": _where,
}  # fmt: skip
