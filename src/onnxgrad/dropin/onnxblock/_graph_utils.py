"""Finding values by name in a model under construction, and names that are new.

These are the functions that blocks of one's own import from onnxruntime.training.onnxblock._graph_utils.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx

_GRAPH_TOKEN = 0  # programs of tests set it back


def generate_graph_name(token: str) -> str:
    """Return a name that no block has used: `onnx::<token>::<n>`, n counting every call.

    The numbers are those of onnxruntime.training, so that programs which know the name of the loss find it.
    """
    return f"onnx::{token}::{_get_token()}"


def _get_token() -> int:
    skip(1)
    return _GRAPH_TOKEN


def skip(count: int, since: int | None = None) -> None:
    """Count names that the old package gave out where this one has no use for them.

    With `since`, a number of names, as if `count` had been given out from there on.
    """
    global _GRAPH_TOKEN
    _GRAPH_TOKEN = (_GRAPH_TOKEN if since is None else since) + count


def given() -> int:
    """Return how many names were given out."""
    return _GRAPH_TOKEN


def get_output_from_output_name(
    onnx_model: onnx.ModelProto, output_name: str
) -> onnx.ValueInfoProto:
    """Return a graph output. Raises LookupError."""
    return _named(onnx_model.graph.output, output_name, "output")


def get_input_from_input_name(onnx_model: onnx.ModelProto, input_name: str) -> onnx.ValueInfoProto:
    """Return a graph input. Raises LookupError."""
    return _named(onnx_model.graph.input, input_name, "input")


def _named(values: Iterable[onnx.ValueInfoProto], name: str, what: str) -> onnx.ValueInfoProto:
    found = {v.name: v for v in values}
    if name not in found:
        listed = ", ".join(map(repr, found)) or "none"
        raise LookupError(f"{name!r} is not an {what} of the model; its {what}s are {listed}")
    return found[name]


def node_arg_exists(model: onnx.ModelProto, node_arg_name: str) -> bool:
    """Say whether a value of this name is there: an input, or of a node."""
    graph = model.graph
    used = (node_arg_name in n.input or node_arg_name in n.output for n in graph.node)
    return any(v.name == node_arg_name for v in graph.input) or any(used)


def register_graph_outputs(model: onnx.ModelProto, output_names: list[str] | str) -> None:
    """Make the named values the outputs of the model, in this order. Raises LookupError."""
    graph = model.graph
    known = {v.name: v for v in (*graph.value_info, *graph.output)}
    outputs = []
    for name in [output_names] if isinstance(output_names, str) else output_names:
        if name not in known:
            raise LookupError(
                f"The provided name {name} is not a graph value info or a graph output: its type "
                "cannot be told"
            )
        outputs.append(onnx.ValueInfoProto.FromString(known[name].SerializeToString()))
    del graph.output[:]
    graph.output.extend(outputs)
