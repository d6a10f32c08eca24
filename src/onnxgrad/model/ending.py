"""The activation at the end of a model, seen through operators that only move its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxgrad.graph import Builder
from onnxgrad.graph.constants import Constants
from onnxgrad.graph.ranges import ROUNDING, activation_of, holds_probabilities

MOVES = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose")
MIXES = ("Clip", "ReduceMean")  # what comes out are still probabilities, but of no logits
ACTIVATIONS = ("Sigmoid", "Softmax", "LogSoftmax")
DROPOUTS = frozenset({"Dropout", "SeededDropout"})
LEFT_OUT = ROUNDING | DROPOUTS


@dataclass(frozen=True)
class Ending:
    """`node` is the activation; `moves` lie between it and the output, the first next to it.

    What only rounds, as at the end of quantised files, is no move: a loss uses what was not rounded yet. Nor is
    a Dropout: behind an activation it would make answers of 0 and 2 of probabilities, which have no loss.
    """

    node: ir.Node
    moves: tuple[ir.Node, ...]
    dropped: bool = False  # whether a Dropout lies behind it

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
    dropped = False
    node = output.producer()
    while node is not None and _is_passed(node):
        if node.op_type not in LEFT_OUT:
            moves.append(node)
        dropped |= node.op_type in DROPOUTS
        node = node.inputs[0].producer()
    if node is None or node.domain or node.op_type not in wanted:
        return None
    return Ending(node, tuple(reversed(moves)), dropped)


def _is_passed(node: ir.Node) -> bool:
    """Whether an activation is looked for before a node; what only rounds is not replayed either."""
    if node.inputs and node.inputs[0] is not None:
        return node.op_type in LEFT_OUT or (not node.domain and node.op_type in (*MOVES, *MIXES))
    return False


def unscaled(output: ir.Value) -> ir.Value:
    """Return a value before it was multiplied or divided by a positive number, as percentages are."""
    constants = Constants(())
    node = output.producer()
    while node is not None and not node.domain and node.op_type in ("Mul", "Div"):
        numbers = [None if v is None else constants.array(v) for v in node.inputs]
        at = 1 if node.op_type == "Div" or numbers[1] is not None else 0
        if numbers[at] is None or numbers[at].size != 1 or not numbers[at].item() > 0:
            break
        output = node.inputs[1 - at]
        node = output.producer()
    return output


def last_operator(value: ir.Value) -> str:
    """Return the operator that makes a value, seen through operators that only move it; "" for an input.

    Of nodes that onnxruntime's optimiser fused it is the activation.
    """
    node, passed = value.producer(), {*MOVES, *ROUNDING, "Cast"}
    while node is not None and node.op_type in passed and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return "" if node is None else activation_of(node)


def kind_of_scores(output: ir.Value) -> str:
    """What a classifier's output holds: "probabilities", "logarithms" of them, or "logits"."""
    found = ending(output)
    if found is not None and found.node.op_type == "LogSoftmax":
        return "logarithms"
    if found is None:  # percentages of classes: their shares are probabilities
        found = ending(unscaled(output), ("Softmax",))
    return "probabilities" if found is not None or holds_probabilities(output) else "logits"


def probabilities(scores: np.ndarray, kind: str) -> np.ndarray:
    """Scores [N, C] as the probability of every class; one column is the second of two classes.

    >>> probabilities(np.array([[0.0, 0.0]]), "logits")
    array([[0.5, 0.5]])
    >>> probabilities(np.array([[0.25]]), "probabilities")
    array([[0.75, 0.25]])
    """
    scores = scores.reshape(len(scores), -1)
    if scores.shape[1] == 1:
        # e^min(x, 0) / (1 + e^-|x|): no power is too large
        yes = np.exp(np.minimum(scores, 0)) / (1 + np.exp(-np.abs(scores)))
        yes = scores if kind == "probabilities" else yes
        return np.concatenate([1 - yes, yes], 1)
    if kind == "logits":
        scores = np.exp(scores - scores.max(1, keepdims=True))
    elif kind == "logarithms":
        scores = np.exp(scores)
    return scores / np.maximum(scores.sum(1, keepdims=True), 1e-30)
