"""Names of values in the bodies of If, Loop and Scan, as a file holds them."""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def unique_names(model: onnx.ModelProto) -> None:
    """Give a value of a body another name where a value elsewhere has the same.

    Bodies may repeat names: both branches of an If have their `weight`. A weight is trained, saved
    and named in one table for the whole model, so each needs a name that is its own.
    """
    taken = set(_own_names(model.graph))
    for body in _bodies(model.graph):
        _rename(body, taken, {})


def _rename(graph: onnx.GraphProto, taken: set[str], outer: dict[str, str]) -> None:
    new = dict(outer)  # names that have changed, as this graph sees them
    for name in _own_names(graph):
        new.pop(name, None)
        fresh, n = name, 0
        while fresh in taken:
            n += 1
            fresh = f"{name}_{n}"
        taken.add(fresh)
        if fresh != name:
            new[name] = fresh
    if new:
        for value in (*graph.input, *graph.initializer, *graph.output, *graph.value_info):
            value.name = new.get(value.name, value.name)
        for tensor in graph.sparse_initializer:
            tensor.values.name = new.get(tensor.values.name, tensor.values.name)
        for node in graph.node:
            node.input[:] = [new.get(name, name) for name in node.input]
            node.output[:] = [new.get(name, name) for name in node.output]
    for body in _bodies(graph):
        _rename(body, taken, new)


def _own_names(graph: onnx.GraphProto) -> list[str]:
    """The names that a graph defines: inputs, initializers, what its nodes make."""
    found = [v.name for v in (*graph.input, *graph.initializer)]
    found += [t.values.name for t in graph.sparse_initializer]
    found += [name for node in graph.node for name in node.output if name]
    return list(dict.fromkeys(found))


def _bodies(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g
            yield from attribute.graphs
