"""Operators of ONNX Runtime Training's graphs that neither ONNX nor onnxgrad has, written as ones that they have.

One function per operator; `REWRITES` is the list. A function appends nodes that end in the names of the old node's
outputs. Everything else of domain com.microsoft is either a kernel of onnxgrad or of stock onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxgrad.contracts import DOMAIN, contracts
from onnxgrad.errors import DropInError

AXES_AS_INPUTS = 13  # the first opset in which Split and ReduceSum take sizes and axes as inputs


class Emitter:
    """Appends nodes; knows the types and static shapes that the model states."""

    def __init__(self, model: onnx.ModelProto):
        graph = model.graph
        self.nodes: list[onnx.NodeProto] = []
        self.types: dict[str, int] = {t.name: t.data_type for t in graph.initializer}
        self.shapes: dict[str, list[int]] = {}
        for value in (*graph.input, *graph.value_info, *graph.output):
            tensor = value.type.tensor_type
            self.types[value.name] = tensor.elem_type
            dims = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
            if tensor.HasField("shape") and all(d >= 0 for d in dims):
                self.shapes[value.name] = dims
        self.opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
        self.integers = _integers(graph)
        self.producer = {o: n for n in graph.node for o in n.output if o}
        self.by_name = {n.name: n for n in graph.node if n.name}
        self._count = 0

    def fresh(self, what: str) -> str:
        self._count += 1
        return f"onnxgrad/{what}_{self._count}"

    def op(self, kind: str, *inputs: str, to: str | None = None, domain: str = "", **attrs) -> str:
        name = to or self.fresh(kind)
        self.nodes.append(
            helper.make_node(kind, inputs, [name], name=self.fresh(kind), domain=domain, **attrs)
        )
        return name

    def constant(self, value, dtype=np.int64) -> str:
        tensor = numpy_helper.from_array(np.asarray(value, dtype))
        return self.op("Constant", value=tensor)

    def number_like(self, value: float, like: str) -> str:
        dtype = helper.tensor_dtype_to_np_dtype(self.types.get(like) or TensorProto.FLOAT)
        return self.constant(value, dtype)


def _integers(graph: onnx.GraphProto) -> dict[str, list[int]]:
    """Return the lists of integers that are constants of the graph."""
    tensors = {t.name: t for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and "value" in (found := attributes(node)):
            tensors[node.output[0]] = found["value"]
    return {
        name: [int(i) for i in numpy_helper.to_array(t).reshape(-1)]
        for name, t in tensors.items()
        if t.data_type == TensorProto.INT64
    }


def attributes(node: onnx.NodeProto) -> dict:
    """Return the attributes of a node by name."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _identity(to: Emitter, node: onnx.NodeProto) -> None:
    for x, y in zip(node.input, node.output, strict=True):
        if y:
            to.op("Identity", x, to=y)


def _scale(to: Emitter, node: onnx.NodeProto) -> None:
    x, scale = node.input
    kind = to.types.get(x) or TensorProto.FLOAT
    scale = _cast(to, scale, kind)
    down = attributes(node).get("scale_down", 0)
    to.op("Div" if down else "Mul", x, scale, to=node.output[0])


def _cast(to: Emitter, x: str, kind: int) -> str:
    name = to.fresh("Cast")
    to.nodes.append(helper.make_node("Cast", [x], [name], name=to.fresh("Cast"), to=kind))
    return name


def _scaled_sum(to: Emitter, node: onnx.NodeProto) -> None:
    scales = attributes(node)
    terms = [
        to.op("Mul", x, to.number_like(scales[f"scale_{i}"], x))
        for i, x in enumerate(node.input)
        if x
    ]
    to.op("Sum", *terms, to=node.output[0])


def _batch_scale(to: Emitter, node: onnx.NodeProto) -> None:
    scales, x = attributes(node), node.input[0]
    for i, y in enumerate(node.output):
        if y:
            to.op("Mul", x, to.number_like(scales[f"scale_{i}"], x), to=y)


def _concat(to: Emitter, node: onnx.NodeProto) -> None:
    axis = attributes(node)["axis"]
    to.op("Concat", *node.input, to=node.output[0], axis=axis)
    if len(node.output) > 1 and node.output[1]:
        place = to.constant([axis])
        sizes = [to.op("Gather", to.op("Shape", x), place) for x in node.input]
        to.op("Concat", *sizes, to=node.output[1], axis=0)


def _split(to: Emitter, node: onnx.NodeProto) -> None:
    if to.opset >= AXES_AS_INPUTS:
        to.nodes.append(
            helper.make_node("Split", node.input, node.output, name=node.name, **attributes(node))
        )
        return
    x, sizes = node.input
    axis, zero = to.constant([attributes(node).get("axis", 0)]), to.constant([0])
    start = zero
    for i, part in enumerate(node.output):
        first = to.op("Slice", sizes, zero, to.constant([i + 1]))
        end = to.op("ReduceSum", first, keepdims=1)
        if part:
            to.op("Slice", x, start, end, axis, to=part)
        start = end


def _reduce_sum(to: Emitter, node: onnx.NodeProto) -> None:
    settings = attributes(node)
    if to.opset >= AXES_AS_INPUTS:
        to.op("ReduceSum", *node.input, to=node.output[0], **settings)
        return
    axes = to.integers.get(node.input[1])
    if axes is None:
        raise DropInError(
            f"node {node.name!r} (ReduceSumTraining) sums over axes that the run computes, which "
            f"opset {to.opset} cannot say; make the artifacts again with "
            "onnxgrad.dropin.artifacts.generate_artifacts"
        )
    if not axes and settings.get("noop_with_empty_axes", 0):
        to.op("Identity", node.input[0], to=node.output[0])
        return
    chosen = {"axes": axes} if axes else {}
    keepdims = settings.get("keepdims", 1)
    to.op("ReduceSum", node.input[0], to=node.output[0], keepdims=keepdims, **chosen)


def _broadcast_axes(to: Emitter, node: onnx.NodeProto) -> None:
    """The axes along which a (and b) was repeated: where its size is 1 and the other's is not."""
    ranks = [to.op("Shape", s) for s in node.input]
    rank, one = to.op("Max", *ranks), to.constant(1)
    padded = []
    for shape, own in zip(node.input, ranks, strict=True):
        ones = to.op("Expand", one, to.op("Sub", rank, own))
        padded.append(to.op("Concat", ones, shape, axis=0))
    differs = to.op("Not", to.op("Equal", *padded))
    for shape, y in zip(padded, node.output, strict=False):
        if y:
            mask = to.op("And", differs, to.op("Equal", shape, one))
            to.op("Reshape", to.op("NonZero", mask), to.constant([-1]), to=y)


def _reduce_all_l2(to: Emitter, node: onnx.NodeProto) -> None:
    squares = [to.op("ReduceSumSquare", x, keepdims=0) for x in node.input]
    to.op("Sqrt", to.op("Sum", *squares), to=node.output[0])


def _fake_quant(to: Emitter, node: onnx.NodeProto) -> None:
    """y = (clip(q) - zero)·scale with q = round(x/scale) + zero; the mask says where q was inside."""
    x, scale, zero = node.input
    settings = attributes(node)
    low = to.number_like(settings.get("quant_min", 0), x)
    high = to.number_like(settings.get("quant_max", 255), x)
    q = to.op("Add", to.op("Round", to.op("Div", x, scale)), zero)
    inside = to.op("Sub", to.op("Min", to.op("Max", q, low), high), zero)
    to.op("Mul", inside, scale, to=node.output[0])
    if len(node.output) > 1 and node.output[1]:
        above, below = to.op("Less", q, low), to.op("Greater", q, high)
        to.op("Not", to.op("Or", above, below), to=node.output[1])


def _fake_quant_grad(to: Emitter, node: onnx.NodeProto) -> None:
    dy, mask = node.input
    to.op("Where", mask, dy, to.number_like(0, dy), to=node.output[0])


def _flatten_and_unpad(to: Emitter, node: onnx.NodeProto) -> None:
    """Rows `indices` of x viewed as [d0·d1, …], and (d0, d1)."""
    x, indices = node.input
    shape = to.op("Shape", x)
    lead = to.op("Slice", shape, to.constant([0]), to.constant([2]))
    rest = to.op("Slice", shape, to.constant([2]), to.constant([1 << 31]))
    flat = to.op("Reshape", x, to.op("Concat", to.constant([-1]), rest, axis=0))
    to.op("Gather", flat, indices, to=node.output[0], axis=0)
    if len(node.output) > 1 and node.output[1]:
        kind = to.types.get(indices) or TensorProto.INT64
        to.op("Identity", _cast(to, lead, kind), to=node.output[1])


def _pad_and_unflatten(to: Emitter, node: onnx.NodeProto) -> None:
    """Zeros of shape [d0, d1, …] with the rows of x at `indices` of the first two dims."""
    x, indices, dims = node.input
    dims, indices = _cast(to, dims, TensorProto.INT64), _cast(to, indices, TensorProto.INT64)
    rest = to.op("Slice", to.op("Shape", x), to.constant([1]), to.constant([1 << 31]))
    rows = to.op("ReduceProd", dims, keepdims=1)
    zeros = to.op("Expand", to.number_like(0, x), to.op("Concat", rows, rest, axis=0))
    places = to.op("Reshape", indices, to.constant([-1, 1]))
    filled = to.op("ScatterND", zeros, places, x)
    to.op("Reshape", filled, to.op("Concat", dims, rest, axis=0), to=node.output[0])


def _bitmask_dropout(to: Emitter, node: onnx.NodeProto) -> None:
    """A Dropout whose mask is packed in bits; here it stays booleans, for `_bitmask_dropout_grad`."""
    to.nodes.append(
        helper.make_node("Dropout", node.input, node.output, name=node.name, **attributes(node))
    )


def _bitmask_dropout_grad(to: Emitter, node: onnx.NodeProto) -> None:
    source = to.producer.get(node.input[1])
    if source is None or source.op_type != "BitmaskDropout":
        raise DropInError(
            f"node {node.name!r} (BitmaskDropoutGrad) takes the mask {node.input[1]!r}, expected "
            "the second output of a BitmaskDropout of the same model"
        )
    to.op("DropoutGrad", *node.input, to=node.output[0], domain=DOMAIN)


def _pool_grad(to: Emitter, node: onnx.NodeProto) -> None:
    """onnxgrad's kernels take the shape of X as an input; the old ones read it off their output."""
    to.op(
        node.op_type, *node.input, _pooled_shape(to, node), to=node.output[0], domain=DOMAIN,
        **attributes(node),
    )  # fmt: skip


def _pooled_shape(to: Emitter, node: onnx.NodeProto) -> str:
    """The shape of the pool's input: of the node that the gradient is named after, or as stated."""
    pool = to.producer.get(node.input[1]) if node.op_type == "MaxPoolGrad" else None
    if pool is None:
        pool = to.by_name.get(node.name.split("_Grad/")[0])
    if pool is not None and pool.op_type in ("MaxPool", "AveragePool"):
        return to.op("Shape", pool.input[0])
    if node.output[0] in to.shapes:
        return to.constant(to.shapes[node.output[0]])
    raise DropInError(
        f"node {node.name!r} ({node.op_type}): the shape of the pool's input cannot be told; "
        "make the artifacts again with onnxgrad.dropin.artifacts.generate_artifacts"
    )


def _is_finite(to: Emitter, node: onnx.NodeProto) -> None:
    x = node.input[0]
    to.op("Not", to.op("Or", to.op("IsNaN", x), to.op("IsInf", x)), to=node.output[0])


def _group(to: Emitter, node: onnx.NodeProto) -> None:
    to.op("Identity", to.constant([True], np.bool_), to=node.output[0])


def _zero_gradient(to: Emitter, node: onnx.NodeProto) -> None:
    x = node.input[0]
    to.op("Expand", to.number_like(0, x), to.op("Shape", x), to=node.output[0])


REWRITES: dict[str, Callable[[Emitter, onnx.NodeProto], None]] = {
    "AveragePoolGrad": _pool_grad,
    "BatchScale": _batch_scale,
    "BitmaskDropout": _bitmask_dropout,
    "BitmaskDropoutGrad": _bitmask_dropout_grad,
    "BroadcastGradientArgs": _broadcast_axes,
    "ConcatTraining": _concat,
    "FakeQuant": _fake_quant,
    "FakeQuantGrad": _fake_quant_grad,
    "FlattenAndUnpad": _flatten_and_unpad,
    "Group": _group,
    "IsFinite": _is_finite,
    "MaxPoolGrad": _pool_grad,
    "MegatronF": _identity,
    "MegatronG": _identity,
    "PadAndUnflatten": _pad_and_unflatten,
    "PassThrough": _identity,
    "ReduceAllL2": _reduce_all_l2,
    "ReduceSumTraining": _reduce_sum,
    "Scale": _scale,
    "ScaledSum": _scaled_sum,
    "SplitTraining": _split,
    "ZeroGradient": _zero_gradient,
}
POOLS = {
    "AveragePoolGrad": 1,
    "MaxPoolGrad": 2,
}  # their inputs in the old package; ours have one more


def needs_rewrite(node: onnx.NodeProto) -> bool:
    """Say whether a node is one of the old package's own."""
    if node.op_type in POOLS:  # in the old package they are of ONNX's domain
        return len(node.input) == POOLS[node.op_type]
    return node.domain == DOMAIN and node.op_type in REWRITES


def rewrite(model: onnx.ModelProto) -> None:
    """Replace every operator of the old package in the main graph, in place."""
    to = Emitter(model)
    for node in model.graph.node:
        if needs_rewrite(node):
            REWRITES[node.op_type](to, node)
        else:
            to.nodes.append(node)
    for node in to.nodes:
        _drop_forward_attributes(node)
    nodes = list(to.nodes)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    _forget_changed_masks(model)


def _drop_forward_attributes(node: onnx.NodeProto) -> None:
    """The old package copies a node's attributes to its gradient, which has no use for them all."""
    if node.domain != DOMAIN or node.op_type not in contracts():
        return
    known = {a.name for a in contracts()[node.op_type].attributes}
    kept = [a for a in node.attribute if a.name in known]
    del node.attribute[:]
    node.attribute.extend(kept)


def _forget_changed_masks(model: onnx.ModelProto) -> None:
    """Drop the stated type of values that the rewriting gave another one."""
    masks = {n.output[1] for n in model.graph.node if n.op_type == "Dropout" and len(n.output) > 1}
    kept = [v for v in model.graph.value_info if v.name not in masks]
    del model.graph.value_info[:]
    model.graph.value_info.extend(kept)
