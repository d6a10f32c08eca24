"""A model under construction: adding nodes and initializers, each with a new name."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxgrad.dropin.onnxblock._graph_utils import generate_graph_name


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
    output = result or generate_graph_name(f"{kind.lower()}_output")
    node = helper.make_node(
        kind, list(inputs), [output], name=generate_graph_name(kind), domain=domain, **attributes
    )
    model.graph.node.append(node)
    return output


def add_initializer(model: onnx.ModelProto, what: str, value: np.ndarray) -> str:
    """Append an initializer; return its name."""
    name = generate_graph_name(what)
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return name


def find(values: Iterable[onnx.ValueInfoProto], name: str) -> onnx.ValueInfoProto | None:
    """Return the description of a value, or None."""
    return next((v for v in values if v.name == name), None)
