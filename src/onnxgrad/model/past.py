"""Decoders with a cache: the past keys and values, which training has none of, are left empty."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from onnxgrad.model.change import Change
from onnxgrad.notes import Note

# How the inputs and outputs of a cache begin, in every exporter that has one.
PAST, PRESENT = "past", "present"


class WithoutPast(Change):
    """Feeds a past of length 0 to every layer, and no longer returns the present one. The file keeps both."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, model: ir.Model) -> None:
        """Replace the inputs of a cache by empty tensors; GroupQueryAttention can do without."""
        graph = model.graph
        cached = [v for v in graph.inputs if is_past(v)]
        rest = [v for v in graph.inputs if v not in cached and v.shape is not None and len(v.shape)]
        if not cached or not rest:
            return
        self.count = len(cached)
        batch = _batch(graph, rest[0])
        for value in cached:
            for node, index in tuple(value.uses()):
                if node.op_type == "GroupQueryAttention":
                    node.replace_input_with(index, None)
            if value.uses():
                ir.convenience.replace_all_uses_with(value, _empty(graph, value, batch))
            graph.inputs.remove(value)
        for output in [v for v in graph.outputs if v.name.startswith(PRESENT)]:
            graph.outputs.remove(output)

    def describe(self) -> Iterable[Note]:
        """Say what is left empty."""
        if self.count:
            text = (
                f"{self.count} inputs of past keys and values are left empty, as in a first prompt"
            )
            yield Note("past", "", text)


def is_past(value: ir.Value) -> bool:
    """Say whether an input is part of a cache: [batch, heads, length, size], of a length that is free."""
    shape = value.shape
    named = value.name.startswith(PAST) and shape is not None and len(shape) == 4
    return named and not isinstance(shape[2], int)


def empty_past(shape: list, batch: int) -> list[int]:
    """Return the shape of a past without length: the batch, and what else the model leaves free is 0."""
    first = shape[0] if isinstance(shape[0], int) else batch
    return [first, *(d if isinstance(d, int) else 0 for d in shape[1:])]


def _batch(graph: ir.Graph, like: ir.Value) -> ir.Value:
    """The number of rows of an input, [1]."""
    kind = ir.TensorType(ir.DataType.INT64)
    value = ir.Value(name="past/batch", type=kind, shape=ir.Shape([1]))
    ends = [ir.AttrInt64("start", 0), ir.AttrInt64("end", 1)]
    node = ir.Node("", "Shape", [like], ends, outputs=[value], name="past/batch")
    graph.insert_before(graph[0], node)
    return value


def _empty(graph: ir.Graph, value: ir.Value, batch: ir.Value) -> ir.Value:
    """A tensor of the input's type and sizes, of length 0."""
    heads, _, size = value.shape[1:]
    rest = np.array([heads if isinstance(heads, int) else 1, 0, size], np.int64)
    name = f"{value.name}/sizes"
    sizes = ir.Value(name=name, const_value=ir.tensor(rest, name=name))
    sizes.dtype, sizes.shape = ir.DataType.INT64, ir.Shape([3])
    graph.register_initializer(sizes)
    kind = ir.TensorType(ir.DataType.INT64)
    whole = ir.Value(name=f"{value.name}/shape", type=kind, shape=ir.Shape([4]))
    join = ir.Node("", "Concat", [batch, sizes], [ir.AttrInt64("axis", 0)], outputs=[whole])
    zero = ir.AttrTensor("value", ir.tensor(np.zeros(1, value.dtype.numpy())))
    empty = ir.Value(name=f"{value.name}/empty", type=value.type)
    empty.shape = ir.Shape([value.shape[0], heads, 0, size])
    fill = ir.Node("", "ConstantOfShape", [whole], [zero], outputs=[empty])
    join.name, fill.name = whole.name, empty.name
    graph.insert_after(batch.producer(), [join, fill])
    return empty
