"""Which weights of a model a caller means."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable, Iterator

import onnx_ir as ir

from onnxgrad.autodiff.untrainable import why_no_weights
from onnxgrad.model.roles import Tensor
from onnxgrad.notes import Note

NO_WEIGHTS = "the model has no weights that its loss depends on"


def select(wanted: str | Iterable[str], model: ir.Model, found: list[Tensor]) -> list[str]:
    """Return the names that `trainable` means, in the order of `found`; see TrainableModel.select."""
    if not any(t.trained for t in found):
        raise ValueError(NO_WEIGHTS + (why_no_weights(model) or _reasons(found)))
    wanted = [wanted] if isinstance(wanted, str) else list(wanted)
    chosen: set[str] = set()
    for pattern in wanted:
        if not isinstance(pattern, str):
            raise ValueError(f"trainable holds a {type(pattern).__name__}, expected names")
        if pattern.startswith("-") and pattern not in {t.name for t in found}:
            chosen.difference_update(_matches(pattern[1:], model, found))
        else:
            chosen.update(_matches(pattern, model, found))
    if not chosen:
        minus = ", ".join(p for p in wanted if p.startswith("-"))
        why = f": nothing is left after {minus}" if minus else ""
        raise ValueError(f"trainable is empty{why}, expected at least one name")
    return [t.name for t in found if t.name in chosen]


def _reasons(found: list[Tensor]) -> str:
    named = [t for t in found if t.size > 1]
    return f"; {named[0].name!r}, say: {named[0].reason}" if named else ""


def in_place_of_weights(model: ir.Model, found: list[Tensor]) -> list[Note]:
    """Say what a model without weights has in their place, in the words in which `select` refuses it."""
    why = "" if any(t.trained for t in found) else why_no_weights(model)
    return [Note("no weights", "", NO_WEIGHTS + why)] if why else []


def _matches(pattern: str, model: ir.Model, found: list[Tensor]) -> list[str]:
    """What is not trained by "all" can be named, by itself or by a pattern that means nothing else."""
    weights = [t.name for t in found if t.trained]
    if pattern == "all":
        return weights
    if pattern == "head":
        return head(model, weights)
    for names in (weights, [t.name for t in found if t.possible]):
        matched = [pattern] if pattern in names else fnmatch.filter(names, pattern)
        matched = matched or _full_matches(pattern, names)
        if matched:
            return matched
    named = next((t for t in found if t.name == pattern), None)
    if named is not None:
        raise ValueError(f"trainable names {pattern!r}, which cannot be trained: {named.reason}")
    near = difflib.get_close_matches(pattern, weights, n=3, cutoff=0.4) or weights[:3]
    listed = ", ".join(map(repr, near))
    raise ValueError(
        f"trainable names {pattern!r}, which matches none of the model's {len(weights)} weights; "
        f"the nearest are {listed}"
    )


def _full_matches(pattern: str, names: list[str]) -> list[str]:
    try:
        return [n for n in names if re.fullmatch(pattern, n)]
    except re.error:
        return []


_LAYERS = {"Gemm", "MatMul", "Conv", "ConvTranspose", "LSTM", "GRU", "RNN"}


def head(model: ir.Model, found: list[str]) -> list[str]:
    """Return the weights of the last layer: from each output back to the first layer with weights.

    What stands behind that layer (a bias added by a node of its own, a scale) belongs to it.
    """
    wanted, graph = set(found), model.graph
    values = [*graph.initializers.values(), *(v for node in graph for v in node.outputs)]
    weights = {v for v in values if v.name in wanted}
    names = {v.name for v, _ in _back_to_layers(model, weights) if v in weights}
    return [name for name in found if name in names]


def head_nodes(model: ir.Model, weights: set[ir.Value]) -> list[ir.Node]:
    """Return the last layers themselves: the first node with weights that each output leads to."""
    return list(dict.fromkeys(n for _, n in _back_to_layers(model, weights) if n is not None))


def _back_to_layers(
    model: ir.Model, weights: set[ir.Value]
) -> Iterator[tuple[ir.Value, ir.Node | None]]:
    """Yield every value from the outputs back to the last layers, and each layer with its output."""
    seen: set[ir.Value] = set()
    waiting = list(model.graph.outputs)
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        node = value.producer()
        inputs = [] if node is None else [v for v in node.inputs if v is not None]
        own = [v for v in inputs if leads_to_weight(v, weights)]
        layer = node if node is not None and node.op_type in _LAYERS and own else None
        waiting.extend(own if layer is not None else inputs)
        yield value, layer


def leads_to_weight(value: ir.Value, weights: set[ir.Value]) -> bool:
    """Say whether a value is a weight, or one transposed, reshaped or cast on its way."""
    while value not in weights:
        node = value.producer()
        if node is None or node.op_type not in ("Transpose", "Reshape", "Cast", "Identity"):
            return False
        value = node.inputs[0]
    return True
