"""Which tensors of a model can be trained, and which of them a caller means."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable, Iterator

import onnx_ir as ir

from onnxgrad.autodiff.plan import choose, make_plan, names_of

TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def candidates(model: ir.Model, outputs: Iterable[ir.Value]) -> list[ir.Value]:
    """Return the weights that `outputs` depend on: float tensors in initializers and Constants.

    Left out are scalars, which are settings (an epsilon, a scale); running statistics; and what
    is read only where an operator has no gradient (axes, sizes, the limits of a Clip).
    """
    graph = model.graph
    found = dict.fromkeys(graph.initializers.values())
    found.update((n.outputs[0], None) for n in graph if n.op_type == "Constant" and not n.domain)
    weights = [v for v in found if _is_weight(v, model.opset_imports)]
    active = make_plan(model, outputs, weights, "fused").active
    return [v for v in weights if v in active]


def _is_weight(value: ir.Value, opset_of: dict[str, int]) -> bool:
    if value.dtype not in TYPES or value.shape is None or len(value.shape) == 0:
        return False
    constant = value.producer() is not None
    if constant and all(d == 1 for d in value.shape):
        return False  # a number that an exporter wrote as a vector
    return any(_learns(node, index, opset_of) for node, index in value.uses())


def _learns(node: ir.Node, index: int, opset_of: dict[str, int]) -> bool:
    """Say whether a node's rule gives a gradient for its input `index`."""
    if node.op_type == "BatchNormalization" and index >= 3:
        return False
    if (node.op_type, index) in _SETTINGS:
        return False
    rules = choose(node, opset_of, "fused")
    names = names_of(node, opset_of, rules[0] if rules else None)
    if not rules or names is None:
        return True  # the walk inlines its body, or says what is missing
    return names.input_name(index) in rules[0].wrt


# Differentiable, yet no weights.
_SETTINGS = {("Clip", 1), ("Clip", 2), ("Pow", 1), ("Pad", 2), ("Resize", 1), ("Resize", 2)}


def select(patterns: str | Iterable[str], model: ir.Model, found: list[ir.Value]) -> list[str]:
    """Return the names that `trainable` means, in the model's order.

    "all", "head" (the last layer), a name, a glob (`encoder.*`), a regular expression that
    matches the whole name, or a list of these. Raises ValueError for a pattern that means nothing.
    """
    names = [v.name for v in found]
    if not names:
        raise ValueError("the model has no weights that its loss depends on")
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    chosen: set[str] = set()
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise ValueError(f"trainable holds a {type(pattern).__name__}, expected names")
        chosen.update(_matches(pattern, model, found, names))
    if not chosen:
        raise ValueError("trainable is empty, expected at least one name")
    return [name for name in names if name in chosen]


def _matches(pattern: str, model: ir.Model, found: list[ir.Value], names: list[str]) -> list[str]:
    if pattern in names:
        return [pattern]
    if pattern == "all":
        return names
    if pattern == "head":
        return head(model, found)
    matched = fnmatch.filter(names, pattern)
    if not matched:
        try:
            matched = [n for n in names if re.fullmatch(pattern, n)]
        except re.error:
            matched = []
    if not matched:
        near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.4) or names[:3]
        listed = ", ".join(map(repr, near))
        raise ValueError(
            f"trainable names {pattern!r}, which matches none of the model's {len(names)} weights; "
            f"the nearest are {listed}"
        )
    return matched


_LAYERS = {"Gemm", "MatMul", "Conv", "ConvTranspose", "LSTM", "GRU", "RNN"}


def head(model: ir.Model, found: list[ir.Value]) -> list[str]:
    """Return the weights of the last layer: from each output back to the first layer with weights.

    What stands behind that layer (a bias added by a node of its own, a scale) belongs to it.
    """
    weights = set(found)
    names = {v.name for v, _ in _back_to_layers(model, weights) if v in weights}
    return [v.name for v in found if v.name in names]


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
