"""Small helpers on values and nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir


def take_over(graph: ir.Graph, forward: ir.Value, value: ir.Value) -> None:
    """Give the forward value's name, users and place among the outputs to `value`."""
    name, shape, kind = forward.name, forward.shape, forward.type
    ir.convenience.replace_all_uses_with(forward, value, replace_graph_outputs=True)
    forward.name = f"{name}/unused"
    value.name, value.shape, value.type = name, shape, kind
    node = forward.producer()
    if node.graph is not None and not any(v.uses() or v.is_graph_output() for v in node.outputs):
        node.graph.remove(node, safe=True)


def make_input(graph: ir.Graph, value: ir.Value) -> None:
    """Turn an initializer or the output of a Constant node into a graph input."""
    if value.name in graph.initializers:
        del graph.initializers[value.name]
        value.const_value = None
        if value not in graph.inputs:
            graph.inputs.append(value)
    elif value.producer() is not None and value.producer().op_type == "Constant":
        node, name = value.producer(), value.name
        new = ir.Value(name=name, shape=value.shape, type=value.type)
        ir.convenience.replace_all_uses_with(value, new, replace_graph_outputs=True)
        graph.remove(node, safe=True)
        graph.inputs.append(new)


def values_of(model: ir.Model) -> dict[str, ir.Value]:
    """Return every named value of the main graph."""
    graph = model.graph
    found = {v.name: v for v in (*graph.inputs, *graph.initializers.values())}
    found.update((v.name, v) for node in graph for v in node.outputs if v.name)
    return found


def names(graph: ir.Graph) -> set[str]:
    """Return every name in use, those of nodes and of inner graphs included."""
    taken = {v.name for v in graph.inputs} | set(graph.initializers)
    for node in ir.traversal.RecursiveGraphIterator(graph):
        taken.add(node.name)
        taken.update(v.name for v in node.outputs)
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                inner = attribute.value
                taken.update(v.name for v in inner.inputs)
                taken.update(inner.initializers)
    return taken


def is_typed(x: Any) -> bool:
    """Say whether x is a value whose type is known."""
    return isinstance(x, ir.Value) and x.dtype is not None


def flags_of(outputs: Any) -> list[bool]:
    """`outputs` is a count, or says which outputs are wanted (`need` of a rule)."""
    if isinstance(outputs, int):
        return [True] * outputs
    return list(outputs.flags) if hasattr(outputs, "flags") else [bool(x) for x in outputs]


def freeze(value: Any) -> Any:
    """Return an attribute's value as something that can be a key."""
    if isinstance(value, (list, tuple, range)):
        return tuple(value)
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if hasattr(value, "numpy") and hasattr(value, "dtype"):
        array = value.numpy()
        return (str(value.dtype), array.shape, array.tobytes())
    return value


def remove_unused(nodes: list[ir.Node]) -> None:
    """Remove nodes that nothing uses any more, and what only they used. The rest stays."""
    while nodes:
        node = nodes.pop()
        if node.graph is None or any(v.uses() or v.is_graph_output() for v in node.outputs):
            continue
        nodes.extend(v.producer() for v in node.inputs if v is not None and v.producer())
        node.graph.remove(node, safe=True)
