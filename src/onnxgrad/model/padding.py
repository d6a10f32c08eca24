"""The row of an embedding that stands for padding: PyTorch gives it no gradient where it is looked up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxgrad.model import origin
from onnxgrad.model.change import Change
from onnxgrad.model.embeddings import WORDS, is_embedding, taken_apart
from onnxgrad.model.parts import Parts
from onnxgrad.model.roles import TYPES
from onnxgrad.notes import Note

SCALE = (
    2**60
)  # beyond 2**23 every float32 is an integer, so that Floor of a number times this is the number


@dataclass(frozen=True)
class PaddingRow:
    """`told`: the exporter wrote it down. `alone`: nothing but lookups reads the table."""

    row: int
    told: bool
    alone: bool


class Padding(Change):
    """Keeps lookups of an embedding's padding row from training it.

    `nn.Embedding(padding_idx=…)` starts with a row of zeros there and gives it no gradient. PyTorch's newer
    exporter notes the row beside the lookup; elsewhere the only row of zeros is taken for it, since no other row of an
    embedding is exactly zero. A head that has the same matrix trains the row all the same.
    """

    def __init__(self) -> None:
        self.rows: dict[str, PaddingRow] = {}

    def apply(self, model: ir.Model) -> None:
        for value in list(model.graph.initializers.values()):
            lookups = [n for n, i in value.uses() if _looks_up(n, i)]
            if not lookups or value.dtype not in TYPES or value.const_value is None:
                continue
            told = _told_row(value, lookups)
            row = _padding_row(value) if told is None else told
            if row is None or row < 0:
                continue
            alone = len(lookups) == len(value.uses())
            for node in lookups:
                lookup = taken_apart(model, node) if is_embedding(node) else node
                _stop_gradient(model, lookup, row)
            self.rows[value.name] = PaddingRow(row, told is not None, alone)

    def describe(self) -> Iterable[Note]:
        for name, found in self.rows.items():
            text = "is all zeros and no other is: it stands for padding and "
            text += "stays zero" if found.alone else "lookups do not train it"
            if found.told:
                text = "stands for padding, as the exporter notes: lookups do not train it"
            yield Note("padding", name, f"row {found.row} of {name!r} {text}")


def _looks_up(node: ir.Node, index: int) -> bool:
    if is_embedding(node):
        return index == WORDS
    axis = node.attributes["axis"].value if "axis" in node.attributes else 0
    return node.op_type == "Gather" and not node.domain and index == 0 and axis == 0


def _told_row(value: ir.Value, lookups: list[ir.Node]) -> int | None:
    """Return the row that the calls of every lookup name, -1 for none; None where they do not tell, or differently."""
    rows = {origin.padding_of(node.metadata_props) for node in lookups}
    row = rows.pop() if len(rows) == 1 else None
    return row if row is not None and row < value.const_value.shape[0] else None


def _padding_row(value: ir.Value) -> int | None:
    shape = value.const_value.shape
    if len(shape) != 2 or shape[0] < 3:
        return None
    return _only_row_of_zeros(value.const_value.numpy())


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


def _stop_gradient(model: ir.Model, node: ir.Node, row: int) -> None:
    """Put `ids == row ? stopped : rows` behind a lookup; `stopped` is the row without a gradient.

    Floor has none, and changes nothing in numbers so large. The numbers themselves stay as they are.
    """
    table, ids, found = node.inputs[0], node.inputs[1], node.outputs[0]
    parts = Parts(model, f"{found.name}/padding")
    constant, make = parts.constant, parts.make
    integer = np.int32 if ids.dtype == ir.DataType.INT32 else np.int64
    kind, own = table.dtype, ir.Shape(table.const_value.shape[1:])
    place = constant("row", np.array(row, integer))
    # an integer in the file: a float would look like a weight
    scale = make("Cast", "scale", [constant("power", np.array(SCALE))], kind, ir.Shape([]), to=kind)
    taken = make("Gather", "taken", [table, place], kind, own)
    large = make("Mul", "large", [taken, scale], kind, own)
    whole = make("Floor", "whole", [large], kind, own)
    stopped = make("Div", "stopped", [whole, scale], kind, own)
    same = make("Equal", "same", [ids, place], ir.DataType.BOOL, ids.shape)
    wide = None if ids.shape is None else ir.Shape([*ids.shape, *[1] * len(own)])
    axes = constant("axes", np.arange(-len(own), 0, dtype=np.int64))
    column = make("Unsqueeze", "column", [same, axes], ir.DataType.BOOL, wide)
    kept = ir.Value(name=f"{parts.base}/kept", shape=found.shape, type=found.type)
    ir.convenience.replace_all_uses_with(found, kept, replace_graph_outputs=True)
    where = ir.Node("", "Where", [column, stopped, found], outputs=[kept], name=kept.name)
    model.graph.insert_after(node, [*parts.nodes, where])
