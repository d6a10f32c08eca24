"""The row of an embedding that stands for padding: zeros, and PyTorch never trains it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from onnxgrad.model.change import Change
from onnxgrad.model.roles import TYPES
from onnxgrad.notes import Note


class Padding(Change):
    """Keeps the only row of zeros of an embedding at zero.

    `nn.Embedding(padding_idx=…)` starts with such a row and gives it no gradient; the file does not say
    so any more, but no other row of an embedding is exactly zero. Where the row is read, the graph
    that is trained multiplies by zero, which changes nothing but the gradient.
    """

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}

    def apply(self, model: ir.Model) -> None:
        for value in list(model.graph.initializers.values()):
            row = _padding_row(value)
            lookups = [n for n, i in value.uses() if _looks_up(n, i)]
            if row is None or not lookups or len(lookups) != len(value.uses()):
                continue
            for node in lookups:
                _mask(model, node, row)
            self.rows[value.name] = row

    def describe(self) -> Iterable[Note]:
        for name, row in self.rows.items():
            yield Note(
                "padding",
                name,
                f"row {row} of {name!r} is all zeros and no other is: it stands for padding and stays zero",
            )


def _looks_up(node: ir.Node, index: int) -> bool:
    axis = node.attributes["axis"].value if "axis" in node.attributes else 0
    return node.op_type == "Gather" and not node.domain and index == 0 and axis == 0


def _padding_row(value: ir.Value) -> int | None:
    tensor = value.const_value
    if value.dtype not in TYPES or tensor is None or len(tensor.shape) != 2 or tensor.shape[0] < 3:
        return None
    if not any(_looks_up(n, i) for n, i in value.uses()):
        return None
    return _only_row_of_zeros(tensor.numpy())


def _only_row_of_zeros(table: np.ndarray, block: int = 1 << 16) -> int | None:
    """Read in blocks, and no further than to a second such row: tables may be larger than the memory left."""
    found: list[int] = []
    for start in range(0, len(table), block):
        found += [
            start + int(i) for i in np.flatnonzero(~table[start : start + block].any(axis=1))[:2]
        ]
        if len(found) > 1:
            return None
    return found[0] if found else None


def _mask(model: ir.Model, node: ir.Node, row: int) -> None:
    """Put `rows · (ids != row)` behind a lookup."""
    ids, found = node.inputs[1], node.outputs[0]
    dtype = node.inputs[0].dtype
    base = f"{found.name}/padding"

    def constant(name: str, array: np.ndarray) -> ir.Value:
        value = ir.Value(name=f"{base}/{name}", const_value=ir.tensor(array))
        value.const_value.name, value.shape = value.name, ir.Shape(array.shape)
        value.dtype = value.const_value.dtype
        model.graph.register_initializer(value)
        return value

    def make(op: str, inputs: list, kind, attributes=(), shape=None) -> ir.Value:
        out = ir.Value(name=f"{base}/{op}", shape=shape, type=ir.TensorType(kind))
        made.append(ir.Node("", op, inputs, list(attributes), outputs=[out], name=out.name))
        return out

    made: list[ir.Node] = []
    integer = np.int32 if ids.dtype == ir.DataType.INT32 else np.int64
    same = make(
        "Equal", [ids, constant("row", np.array(row, integer))], ir.DataType.BOOL, shape=ids.shape
    )
    other = make("Not", [same], ir.DataType.BOOL, shape=ids.shape)
    number = make("Cast", [other], dtype, [ir.AttrInt64("to", int(dtype))], ids.shape)
    wide = None if ids.shape is None else ir.Shape([*ids.shape, 1])
    column = make(
        "Unsqueeze", [number, constant("axis", np.array([-1], np.int64))], dtype, shape=wide
    )
    kept = ir.Value(name=f"{base}/kept", shape=found.shape, type=found.type)
    ir.convenience.replace_all_uses_with(found, kept, replace_graph_outputs=True)
    made.append(ir.Node("", "Mul", [found, column], outputs=[kept], name=kept.name))
    model.graph.insert_after(node, made)
