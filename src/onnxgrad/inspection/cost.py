"""What a training step takes: arithmetic and memory, from the shapes that are known."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass

import onnx_ir as ir

from onnxgrad.inspection import memory


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


LOSS = 3  # times what it judges: that itself, the difference to the targets, and the gradient that it begins with
OVERHEAD = 8 << 20  # graphs and two sessions of a small model


class _Sizes:
    """Shapes in numbers; a dim that only the run knows counts as `batch` when it comes first, as 1 elsewhere."""

    def __init__(self, batch: int):
        self.batch = batch

    def shape(self, value: ir.Value | None) -> list[int] | None:
        if value is None or value.shape is None:
            return None
        return [
            d if isinstance(d, int) else self.batch if axis == 0 else 1
            for axis, d in enumerate(value.shape)
        ]

    def count(self, value: ir.Value | None) -> int | None:
        shape = self.shape(value)
        return None if shape is None else math.prod(shape)

    def bytes(self, value: ir.Value) -> int:
        return (self.count(value) or 0) * memory.width(value)


def estimate(
    forward: ir.Model,
    step: ir.Model | None,
    active: set[str],
    trained: Container[str],
    batch: int,
    assumed: dict[str, int],
    judged: Iterable[str] = (),
) -> Cost:
    """`forward` has numbers for the sizes of its inputs, those `assumed` among them; `step` is the graph that trains.

    The step is without its loss, which is of `judged`.
    Without a step, where something stands in the way of the gradient, all values with names in `active` are kept for
    the way back.
    """
    sizes = _Sizes(batch)
    flops = [_flops(node, sizes) for node in forward.graph]
    total = sum(f or 0 for f in flops)
    tensors = memory.tensors_of(forward.graph, trained)
    parameters = sum(sizes.bytes(v) for n, v in tensors.items() if n in trained)
    run = forward if step is None else step
    outputs = {v.name: v for v in forward.graph.outputs}
    alive = memory.alive_at_most(run.graph) + LOSS * sum(sizes.bytes(outputs[n]) for n in judged)
    if step is None:
        alive += sum(
            sizes.bytes(v) for node in forward.graph for v in node.outputs if v.name in active
        )
    return Cost(
        forward_flops=total,
        step_flops=3 * total,  # the way back multiplies by the transposed operands, once for each
        file_bytes=sum(sizes.bytes(v) for v in tensors.values() if not memory.is_outside(v)),
        parameter_bytes=parameters,
        gradient_bytes=parameters,
        optimizer_bytes=2 * parameters,  # AdamW keeps two moments
        frozen_bytes=memory.kept_by_sessions(v for n, v in tensors.items() if n not in trained),
        activation_bytes=int(memory.SPARE * alive),
        working_bytes=memory.workspace(run.graph) + memory.NODE * memory.count_nodes(run.graph),
        assumed=assumed,
        uncounted=sum(f is None for f in flops),
    )


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
