"""From an evaluation model and parameters to a model for inference."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from onnxgrad.dropin.old.training_model import domains, evaluation_model
from onnxgrad.errors import DropInError, DropInTypeError
from onnxgrad.files.write import save


def export_for_inference(
    source: str | os.PathLike[str],
    parameters: Mapping[str, np.ndarray],
    path: str | os.PathLike[str],
    outputs: Sequence[str],
) -> None:
    """Write the part of the evaluation model at `source` that computes `outputs`."""
    model = evaluation_model(source, parameters).model
    if isinstance(outputs, str) or not all(isinstance(name, str) for name in outputs):
        raise DropInTypeError(
            f"graph_output_names is {outputs!r}, expected a list of names of the model's values"
        )
    if not outputs:
        raise DropInError("graph_output_names is empty, expected names of the model's values")
    cut(model, outputs)
    insert(model, parameters)
    try:
        save(model, Path(os.fspath(path)))
    except OSError as error:
        raise DropInError(f"{os.fspath(path)} cannot be written: {error}") from error


def cut(model: onnx.ModelProto, outputs: Sequence[str]) -> None:
    """Keep what computes `outputs`, in place; inputs that only the loss had go too."""
    graph = model.graph
    inferred = onnx.shape_inference.infer_shapes(model).graph
    infos = {v.name: v for v in (*inferred.value_info, *inferred.output, *inferred.input)}
    made = {o for n in graph.node for o in n.output if o}
    for name in outputs:
        if name not in made or name not in infos:
            last = ", ".join(repr(n.output[0]) for n in graph.node[-6:])
            raise DropInError(
                f"Expected graph output for inference graph {name} could not be found; the model "
                f"computes, among others, {last}"
            )
    nodes, needed = [], set(outputs)
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            nodes.append(node)
            needed.update(_read_by(node))
    kept = {
        "node": nodes[::-1],
        "input": [v for v in graph.input if v.name in needed],
        "output": [infos[name] for name in outputs],
        "initializer": [t for t in graph.initializer if t.name in needed],
        "value_info": [v for v in graph.value_info if v.name in needed and v.name not in outputs],
    }
    for part, values in kept.items():
        copies = [type(v).FromString(v.SerializeToString()) for v in values]
        graph.ClearField(part)
        getattr(graph, part).extend(copies)
    used = domains(model) | {""}
    imports = [o for o in model.opset_import if o.domain in used]
    copies = [(o.domain, o.version) for o in imports]
    model.ClearField("opset_import")
    model.opset_import.extend(onnx.helper.make_opsetid(d, v) for d, v in copies)


def _read_by(node: onnx.NodeProto) -> set[str]:
    """Return the names that a node reads, in its bodies too."""
    names = {i for i in node.input if i}
    for attribute in node.attribute:
        for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            for inner in body.node:
                names |= _read_by(inner)
            names.update(v.name for v in body.output)
    return names


def insert(model: onnx.ModelProto, parameters: Mapping[str, np.ndarray]) -> None:
    """Turn the inputs that are parameters into initializers, in place."""
    graph = model.graph
    rest = [v for v in graph.input if v.name not in parameters]
    for value in graph.input:
        if value.name in parameters:
            tensor = numpy_helper.from_array(np.asarray(parameters[value.name]), value.name)
            graph.initializer.append(tensor)
    rest = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in rest]
    graph.ClearField("input")
    graph.input.extend(rest)
