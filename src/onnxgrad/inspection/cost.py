"""What a training step takes: arithmetic and memory, from the shapes that are known."""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx_ir as ir

from onnxgrad.ort import BOUND, LARGE


@dataclass(frozen=True)
class Cost:
    """What a step takes; docs/inspect.md says how each number is counted.

    `assumed` names the dims whose size the model leaves open, and what was put there.
    """

    forward_flops: int
    step_flops: int
    file_bytes: int  # the tensors of the file, which the trainer keeps to write them
    parameter_bytes: int  # those that are trained, in the trainer's own memory
    gradient_bytes: int
    optimizer_bytes: int
    frozen_bytes: int  # those that are not, in the session
    activation_bytes: int  # forward values that wait for the backward pass
    working_bytes: int  # what one operator reads and writes beside them
    assumed: dict[str, int]
    uncounted: int  # nodes whose shapes are not known

    @property
    def step_bytes(self) -> int:
        """The memory that training takes beside what Python and its libraries do."""
        return OVERHEAD + sum(v for k, v in vars(self).items() if k.endswith("_bytes"))


OVERHEAD = 12 << 20  # graphs and two sessions of a small model
_PACKED = {
    "MatMul",
    "Gemm",
    "FusedMatMul",
    "LSTM",
    "GRU",
}  # the runtime keeps their weights, packed, too


class _Sizes:
    """Shapes in numbers; an open dim counts as `batch` when it comes first, as 1 elsewhere."""

    def __init__(self, batch: int):
        self.batch = batch
        self.assumed: dict[str, int] = {}

    def shape(self, value: ir.Value | None) -> list[int] | None:
        if value is None or value.shape is None:
            return None
        return [self._dim(d, axis) for axis, d in enumerate(value.shape)]

    def _dim(self, dim, axis: int) -> int:
        if isinstance(dim, int):
            return dim
        size = self.batch if axis == 0 else 1
        name = str(getattr(dim, "value", None) or dim)
        if name not in ("None", "?", ""):
            size = self.assumed.setdefault(name, size)
        return size

    def count(self, value: ir.Value | None) -> int | None:
        shape = self.shape(value)
        return None if shape is None else math.prod(shape)

    def bytes(self, value: ir.Value) -> int:
        return (self.count(value) or 0) * _width(value)


def estimate(model: ir.Model, active: set[ir.Value], trained: list[ir.Value], batch: int) -> Cost:
    """`active` are the values that carry a gradient: their forward values are kept for the backward pass."""
    sizes = _Sizes(batch)
    forward, uncounted, activations, working = 0, 0, 0, 0
    for node in model.graph:
        flops = _flops(node, sizes)
        uncounted += flops is None
        forward += flops or 0
        kept = any(v in active for v in node.outputs)
        made = sum(sizes.bytes(v) for v in node.outputs)
        read = [v for v in node.inputs if v is not None and v.producer() is not None]
        activations += made if kept else 0
        # in the backward pass the gradients of what the operator read and made are there at once
        working = max(working, made + sum(sizes.bytes(v) for v in read))
    tensors = list(model.graph.initializers.values())
    parameters = sum(sizes.bytes(v) for v in trained)
    mine = set(trained)
    return Cost(
        forward_flops=forward,
        step_flops=3
        * forward,  # the backward pass multiplies by the transposed operands, once for each
        file_bytes=sum(sizes.bytes(v) for v in tensors),
        parameter_bytes=parameters,
        gradient_bytes=parameters,
        optimizer_bytes=2 * parameters,  # AdamW keeps two moments
        frozen_bytes=_frozen_bytes({v: sizes.bytes(v) for v in tensors if v not in mine}),
        activation_bytes=activations,
        working_bytes=working,
        assumed=sizes.assumed,
        uncounted=uncounted,
    )


def _frozen_bytes(frozen: dict[ir.Value, int]) -> int:
    """What sessions keep of them beside the file's own; of many, large ones are read where they lie."""
    in_place = sum(frozen.values()) >= LARGE
    copied = {v: size for v, size in frozen.items() if not in_place or size < BOUND}
    return int(sum(_times(v) * size for v, size in copied.items()))


def _times(value: ir.Value) -> float:
    """How often a frozen tensor is in memory beside the file's own: two or three times, as measured."""
    return 2.5 if any(node.op_type in _PACKED for node, _ in value.uses()) else 1


def _width(value: ir.Value) -> int:
    if value.dtype is None or value.dtype == ir.DataType.STRING:
        return 4  # a string has no size of its own; labels are short
    return max(1, int(value.dtype.itemsize))


def _flops(node: ir.Node, sizes: _Sizes) -> int | None:
    """Two per multiply-add for products; one per element for everything else."""
    out = sizes.count(node.outputs[0]) if node.outputs else 0
    if out is None:
        return None
    kind = node.op_type
    if kind in ("MatMul", "Gemm", "FusedMatMul", "FusedGemm"):
        a = sizes.shape(node.inputs[0])
        inner = None if not a else a[0] if _flag(node, "transA") else a[-1]
        return None if inner is None else 2 * out * inner
    if kind in ("Conv", "FusedConv", "ConvInteger"):
        w = sizes.shape(node.inputs[1])
        return None if not w else 2 * out * math.prod(w[1:])
    if kind == "ConvTranspose":
        w, x = sizes.shape(node.inputs[1]), sizes.count(node.inputs[0])
        return None if not w or x is None else 2 * x * math.prod(w[1:])
    if kind in ("LSTM", "GRU", "RNN"):
        x, w = sizes.shape(node.inputs[0]), sizes.shape(node.inputs[1])
        r = sizes.shape(node.inputs[2])
        return None if not (x and w and r) else 2 * x[0] * x[1] * (math.prod(w) + math.prod(r))
    return out


def _flag(node: ir.Node, name: str) -> bool:
    return name in node.attributes and bool(node.attributes[name].value)
