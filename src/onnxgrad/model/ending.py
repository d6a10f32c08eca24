"""The activation at the end of a model, seen through operators that only move its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxgrad.graph import Builder

MOVES = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose")
MIXES = ("Clip", "ReduceMean")  # what comes out are still probabilities, but of no logits
ACTIVATIONS = ("Sigmoid", "Softmax", "LogSoftmax")


@dataclass(frozen=True)
class Ending:
    """`node` is the activation; `moves` lie between it and the output, the first next to it."""

    node: ir.Node
    moves: tuple[ir.Node, ...]

    @property
    def mixed(self) -> bool:
        """Whether logits cannot be had: something after the activation computes."""
        return any(node.op_type in MIXES for node in self.moves)

    def replay(self, op: Builder, value: ir.Value) -> ir.Value:
        """Move `value`, in place of what the activation gave, to where the output is."""
        for node in self.moves:
            attributes = {k: a.value for k, a in node.attributes.items()}
            made = op.emit(node.op_type, [value, *node.inputs[1:]], attributes, [True], node.domain)
            value = made[0]
        return value


def ending(output: ir.Value, wanted: Sequence[str] = ACTIVATIONS) -> Ending | None:
    """Return the activation that a model's output comes out of; None where there is none."""
    moves: list[ir.Node] = []
    node = output.producer()
    while node is not None and not node.domain and node.op_type in (*MOVES, *MIXES):
        moves.append(node)
        node = node.inputs[0].producer()
    if node is None or node.domain or node.op_type not in wanted:
        return None
    return Ending(node, tuple(reversed(moves)))


def last_operator(value: ir.Value) -> str:
    """Return the operator that makes a value, seen through operators that only move it; "" for an input."""
    node = value.producer()
    while node is not None and node.op_type in (*MOVES, "Cast") and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return "" if node is None else node.op_type
