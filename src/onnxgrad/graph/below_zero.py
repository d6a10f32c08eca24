"""Pictures that are smaller than the windows which slide over them: sizes that would lie below zero.

onnx computes such sizes without a word, and ends the process at the next Slice of one. A file can state them, and so
do sizes that somebody assumes for what a file leaves open.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

_WINDOWS = {
    "Conv", "ConvInteger", "QLinearConv", "ConvTranspose", "DeformConv", "MaxPool", "AveragePool", "LpPool", "Pad",
    "Resize",
}  # fmt: skip
_HIDDEN = "Slice "  # no operator is called so, and of what it does not know onnx infers nothing


def inferred(model: ir.Model, infer: Callable[[ir.Model], None]) -> None:
    """Let `infer` work in turns: a Slice behind windows only once no size before it is below zero.

    Such sizes are forgotten, and then nothing is known behind them.
    """
    stages = _stages(model)
    last = max(stages.values(), default=0)
    shown = 0
    while True:
        hidden = [node for node, stage in stages.items() if stage > shown]
        for node in hidden:
            node.op_type = _HIDDEN
        try:
            infer(model)
        finally:
            for node in hidden:
                node.op_type = "Slice"
        if forget(model) or shown >= last:
            return
        shown += 2


def _stages(model: ir.Model) -> dict[ir.Node, int]:
    """How many changes between windows and slices lie before each Slice: odd numbers come right behind a window."""
    stage: dict[ir.Value, int] = {}
    found: dict[ir.Node, int] = {}
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        before = max((stage.get(v, 0) for v in node.inputs if v is not None), default=0)
        if node.domain:
            after = before
        elif node.op_type in ("Shape", "Size"):
            after = 0  # whatever the sizes are, how many there are is not below zero
        elif node.op_type == "Slice":
            found[node] = before
            after = before + before % 2
        else:
            after = before + (node.op_type in _WINDOWS and before % 2 == 0)
        stage.update(dict.fromkeys(node.outputs, after))
    return found


def forget(model: ir.Model) -> bool:
    """Forget sizes below zero, and say whether there were any.

    Some exporters write -1 for a size that only the run knows.
    """
    found = False
    for graph in model.graphs():
        values = [*graph.inputs, *graph.outputs, *(v for node in graph for v in node.outputs)]
        for value in values:
            shape = value.shape
            if shape is not None and any(isinstance(d, int) and d < 0 for d in shape):
                known = [None if isinstance(d, int) and d < 0 else d for d in shape]
                value.shape, found = ir.Shape(known), True
    return found
