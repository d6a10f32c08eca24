"""InstanceNorm with running statistics, which exporters write as a batch normalisation of every picture by itself."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from onnxgrad.model.change import Change, Draft
from onnxgrad.model.roles import TYPES
from onnxgrad.notes import Note


class InstanceStatistics(Change):
    """Trains one scale for each channel where a file has one for each channel of each picture.

    `InstanceNorm2d(track_running_stats=True)` becomes a BatchNormalization of [1, N·C, H, W], with scale, bias and
    statistics N times in a row: by Tile in the graph, or, where the newer exporter computed that, as tensors of N·C
    numbers, which would go their own ways.
    """

    def __init__(self) -> None:
        self.times: dict[str, int] = {}

    def apply(self, model: ir.Model) -> None:
        for node in list(model.graph):
            channels = channels_of_instances(node)
            for value in node.inputs[1:5] if channels else ():
                tensor = value.const_value if value.is_initializer() else None
                if tensor is None or value.dtype not in TYPES or value.name in self.times:
                    continue
                times, rest = divmod(tensor.size, channels)
                rows = tensor.numpy().reshape(-1, channels) if not rest else np.zeros((0, 1))
                if times > 1 and (rows == rows[:1]).all():
                    self.times[value.name] = times
                    _shrink(model, value, rows[0], times)

    def describe(self) -> Iterable[Note]:
        for name, times in self.times.items():
            text = f"tensor {name!r} repeats one row {times} times, once for each picture: it trains as that one row"
            yield Note("repeated", name, text)

    def write_back(self, draft: Draft) -> None:
        for name, times in self.times.items():
            if name in draft.tensors:
                draft.tensors[name] = np.tile(draft.tensors[name], times)


def channels_of_instances(node: ir.Node) -> int:
    """Return the channels of a picture where a batch normalisation takes pictures one by one; else 0."""
    if node.op_type != "BatchNormalization" or node.domain or node.inputs[0] is None:
        return 0
    before, shape = node.inputs[0].producer(), node.inputs[0].shape
    if before is None or before.op_type != "Reshape" or shape is None or shape[0] != 1:
        return 0
    source = before.inputs[0].shape
    if source is None or len(source) != len(shape) or not isinstance(source[1], int):
        return 0
    return source[1] if source[0] != 1 else 0


def root(value: ir.Value) -> ir.Value:
    """Return the tensor that Tile, Expand and Reshape repeat."""
    while (node := value.producer()) is not None and node.op_type in ("Tile", "Expand", "Reshape"):
        value = node.inputs[0]
    return value


def _shrink(model: ir.Model, value: ir.Value, row: np.ndarray, times: int) -> None:
    whole = ir.Value(name=f"{value.name}/repeated", shape=value.shape, type=value.type)
    count = ir.Value(name=f"{value.name}/times", const_value=ir.tensor(np.array([times], np.int64)))
    count.const_value.name, count.dtype, count.shape = count.name, ir.DataType.INT64, ir.Shape([1])
    model.graph.register_initializer(count)
    ir.convenience.replace_all_uses_with(value, whole)
    value.const_value = ir.Tensor(np.ascontiguousarray(row), name=value.name)
    value.shape = ir.Shape(row.shape)
    node = ir.Node("", "Tile", [value, count], outputs=[whole], name=whole.name)
    model.graph.insert_before(next(iter(model.graph)), node)
