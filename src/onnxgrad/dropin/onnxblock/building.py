"""A model under construction: finding what has a name, and adding nodes and initializers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import onnx
from onnx import helper, numpy_helper

_tokens = itertools.count(1)


def fresh(what: str) -> str:
    """Return a name that no block has used."""
    return f"onnx::{what}::{next(_tokens)}"


def add_node(
    model: onnx.ModelProto,
    kind: str,
    inputs: Iterable[str],
    *,
    result: str | None = None,
    domain: str = "",
    **attributes,
) -> str:
    """Append a node; return the name of its output."""
    output = result or fresh(f"{kind.lower()}_output")
    node = helper.make_node(
        kind, list(inputs), [output], name=fresh(kind), domain=domain, **attributes
    )
    model.graph.node.append(node)
    return output


def add_initializer(model: onnx.ModelProto, what: str, value: np.ndarray) -> str:
    """Append an initializer; return its name."""
    name = fresh(what)
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return name


def exists(model: onnx.ModelProto, name: str) -> bool:
    """Say whether a value of this name is there: an input, or of a node."""
    graph = model.graph
    used = (name in node.input or name in node.output for node in graph.node)
    return any(v.name == name for v in graph.input) or any(used)


def find(values: Iterable[onnx.ValueInfoProto], name: str) -> onnx.ValueInfoProto | None:
    """Return the description of a value, or None."""
    return next((v for v in values if v.name == name), None)


def output_named(model: onnx.ModelProto, name: str) -> onnx.ValueInfoProto:
    """Return a graph output."""
    found = find(model.graph.output, name)
    if found is None:
        listed = ", ".join(repr(v.name) for v in model.graph.output) or "none"
        raise LookupError(f"{name!r} is not an output of the model; its outputs are {listed}")
    return found


def set_outputs(model: onnx.ModelProto, names: Iterable[str] | str) -> None:
    """Make the named values the outputs of the model, in this order."""
    graph = model.graph
    known = {v.name: v for v in (*graph.value_info, *graph.output)}
    outputs = []
    for name in [names] if isinstance(names, str) else names:
        if name not in known:
            raise LookupError(
                f"The provided name {name} is not a graph value info or a graph output: its type "
                "cannot be told"
            )
        outputs.append(onnx.ValueInfoProto.FromString(known[name].SerializeToString()))
    del graph.output[:]
    graph.output.extend(outputs)
