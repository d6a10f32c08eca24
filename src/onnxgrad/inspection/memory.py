"""The memory of a run, from the very graph that trains: what is alive at once, and what sessions keep."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence

import onnx_ir as ir

from onnxgrad.autodiff.api import vjp
from onnxgrad.errors import OnnxGradError
from onnxgrad.graph import load
from onnxgrad.graph.bodies import bodies
from onnxgrad.model.modes import train_batch_norm
from onnxgrad.ort import BOUND, LARGE

Shapes = Mapping[str, Sequence[int]]  # of inputs, by name
HELD = 1 << 16  # bytes: smaller tensors are not worth a copy of their own
NODE = 60 << 10  # bytes that a node takes in graphs and sessions
SPARE = 1.1  # what an arena has beside what is alive: gaps
_VIEWS = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"}
_IN_PLACE = {
    "Relu", "Add", "Mul", "Sub", "Div", "Sigmoid", "Tanh", "Clip", "Sqrt", "Exp", "Softmax", "Gelu", "Erf", "Neg",
    "BatchNormalization",
}  # fmt: skip
_PACKED = {"MatMul", "Gemm", "FusedMatMul", "LSTM", "GRU", "RNN"}
_RECURRENT = {"LSTMTraining", "GRUTraining"}  # a frozen one is packed once


def training_graph(
    forward: ir.Model, judged: Iterable[str], trained: Iterable[str]
) -> ir.Model | None:
    """Return the graph of a step, without its loss; None where it has no gradient."""
    trained, copy = list(trained), forward.clone()
    train_batch_norm(copy, set(trained), set(trained), [])
    try:
        return vjp(copy, list(judged), trained, parameters="inputs")
    except (OnnxGradError, ValueError):
        return None


def with_sizes(model: ir.Model, batch: int, shapes: Shapes) -> tuple[ir.Model, dict[str, int]]:
    """Return a copy whose inputs have numbers for sizes, and the numbers of those that have names.

    Those of `shapes`; else an open one is `batch` where it comes first, and 1 elsewhere.
    """
    copy = model.clone()
    known = _bound_names(copy, shapes)
    for value in copy.graph.inputs:
        if value.name in shapes:
            value.shape = ir.Shape(shapes[value.name])
        elif value.shape is not None and value.name not in copy.graph.initializers:
            sizes = [batch if axis == 0 else 1 for axis in range(len(value.shape))]
            pairs = zip(value.shape, sizes, strict=True)
            value.shape = ir.Shape([_number(d, size, known) for d, size in pairs])
    for node in copy.graph:
        for value in node.outputs:
            value.shape = None  # inferred anew
    return load(copy), known


def _number(dim: int | ir.SymbolicDim, size: int, known: dict[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    name = _name_of(dim)
    return known.setdefault(name, size) if name else size


def _bound_names(model: ir.Model, shapes: Shapes) -> dict[str, int]:
    """Return the sizes that shapes of inputs give to names. Raises ValueError for shapes that no input has."""
    inputs = {v.name: v for v in model.graph.inputs if v.name not in model.graph.initializers}
    found: dict[str, int] = {}
    for name, sizes in shapes.items():
        if name not in inputs:
            listed = ", ".join(map(repr, inputs))
            raise ValueError(f"shapes names the input {name!r}; the inputs are {listed}")
        declared = inputs[name].shape
        dims = list(sizes) if declared is None else list(declared)
        fits = len(dims) == len(sizes) and all(
            not isinstance(d, int) or d == n for d, n in zip(dims, sizes, strict=True)
        )
        if not fits:
            shown = ", ".join(str(d) if isinstance(d, int) else _name_of(d) or "?" for d in dims)
            raise ValueError(f"input {name!r} has shape [{shown}], and shapes gives {list(sizes)}")
        found.update(
            (_name_of(d), n) for d, n in zip(dims, sizes, strict=True) if not isinstance(d, int)
        )
    return {name: size for name, size in found.items() if name}


def _name_of(dim: object) -> str:
    """Return the name of an open size; "" where it has none."""
    name = str(getattr(dim, "value", None) or dim)
    return "" if name in ("None", "?") else name


def size_of(value: ir.Value) -> int:
    """Bytes of a value; what is not known counts as one element."""
    dims = [] if value.shape is None else [d if isinstance(d, int) else 1 for d in value.shape]
    return math.prod(dims) * width(value)


def width(value: ir.Value) -> int:
    if value.dtype is None or value.dtype == ir.DataType.STRING:
        return 4  # a string has no size of its own; labels are short
    return max(1, int(value.dtype.itemsize))


def alive_at_most(graph: ir.Graph) -> int:
    """Bytes of the values that are there at once, node after node; gradients have memory of their own."""
    nodes = list(graph)
    whole: dict[ir.Value, ir.Value] = {}  # a view, and what it shows
    for node in nodes:
        if node.op_type in _VIEWS and not node.domain and not node.outputs[0].is_graph_output():
            whole[node.outputs[0]] = whole.get(node.inputs[0], node.inputs[0])
    last = {whole.get(v, v): n for n in nodes for v in n.inputs if v is not None}
    alive: dict[ir.Value, int] = {}
    now, most = 0, 0
    for node in nodes:
        made = [v for v in node.outputs if v.name and v not in whole and not v.is_graph_output()]
        read = dict.fromkeys(whole.get(v, v) for v in node.inputs if v is not None)
        done = [v for v in read if v in alive and last[v] is node]
        alive.update((v, size_of(v)) for v in made)
        now += sum(alive[v] for v in made)
        reused = node.op_type in _IN_PLACE and not node.domain and len(made) == 1
        shared = reused and any(alive[v] == alive[made[0]] for v in done)
        most = max(most, now - (alive[made[0]] if shared else 0) + _inside(node))
        for value in [*done, *(v for v in made if v not in last)]:
            now -= alive.pop(value)
    return most


def _inside(node: ir.Node) -> int:
    """Bytes of the values inside a node's bodies; what a trip hands on has memory beside what it was handed."""
    found = [alive_at_most(b) + sum(size_of(v) for v in b.outputs) for b in bodies(node)]
    return max(found, default=0)


def count_nodes(graph: ir.Graph) -> int:
    """Return how many nodes a graph has, those of bodies with them."""
    return sum(1 for _ in ir.traversal.RecursiveGraphIterator(graph))


def workspace(graph: ir.Graph) -> int:
    """Bytes that an operator takes while it runs, at most: pictures of a convolution unrolled, packed matrices."""
    most = 0
    for node in graph:
        if node.op_type == "Conv" and not node.domain:
            most = max(most, _unrolled(node))
        elif node.op_type in _RECURRENT:
            most = max(most, sum(size_of(v) for v in node.inputs[1:3] if v is not None))
    return most


def _unrolled(node: ir.Node) -> int:
    """What every pixel of one picture's result reads.

    A result with more pixels than channels is computed in parts, which take next to nothing.
    """
    kernel, result = node.inputs[1].shape, node.outputs[0].shape
    if kernel is None or result is None or not kernel.is_static() or not result.is_static():
        return 0
    groups = node.attributes["group"].value if "group" in node.attributes else 1
    pixels = math.prod(result[2:])
    if math.prod(kernel[2:]) == 1 or kernel[0] // max(groups, 1) <= pixels:
        return 0
    return math.prod(kernel[1:]) * pixels * width(node.outputs[0])


def tensors_of(graph: ir.Graph, trained: Container[str]) -> dict[str, ir.Value]:
    """What a file holds, by name: initializers, and Constants, in which some exporters write weights."""
    constants = (n.outputs[0] for n in graph if n.op_type == "Constant" and not n.domain)
    weights = {v.name: v for v in constants if v.name in trained or size_of(v) >= HELD}
    return {**graph.initializers, **weights}


def kept_by_sessions(tensors: Iterable[ir.Value]) -> int:
    """Bytes that frozen tensors take beside the file's own.

    Each is lent to sessions as an array; of many, large ones are read there. Others a session copies, and products and
    convolutions have them once more in an order of their own.
    """
    sizes = {v: size_of(v) for v in tensors}
    in_place = sum(sizes.values()) >= LARGE
    found = 0.0
    for value, size in sizes.items():
        lent = 0 if is_outside(value) or size < HELD else 1
        copies = 0 if in_place and size >= BOUND else _copies(value)
        found += (lent + copies) * size
    return int(found)


def is_outside(value: ir.Value) -> bool:
    """It lies in a data file, whose pages are mapped."""
    return isinstance(value.const_value, ir.ExternalTensor)


def _copies(value: ir.Value) -> float:
    """How often, as measured: what is packed is given back, one tensor after the other."""
    kinds = {node.op_type for node, _ in value.uses()}
    if kinds & {"Conv", "ConvTranspose"}:
        return 2
    return 1.5 if kinds & _PACKED else 1
