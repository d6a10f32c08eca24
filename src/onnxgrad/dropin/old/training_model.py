"""The models of a set of artifacts, made ready for stock onnxruntime.

In the files, parameters are inputs, and every gradient ends in a node that adds it to a buffer in place:

    <p>_grad.accumulation.buffer, <p>_grad, lazy_reset_grad → InPlaceAccumulatorV2 → <p>_grad.accumulation.out

A run here writes the gradients straight into memory that onnxgrad owns, so these nodes fall away.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

import onnx
from onnx import helper

from onnxgrad.contracts import DOMAIN, OPSET
from onnxgrad.dropin.old.old_ops import attributes, rewrite
from onnxgrad.errors import DropInError, OnnxGradError
from onnxgrad.files.models import read_whole

ACCUMULATOR = "InPlaceAccumulatorV2"
RESET = "lazy_reset_grad"
FORMAT_OF_EVERY_RUNTIME = 10  # the newest that onnxruntime 1.19 reads
BUFFER, DONE = "_grad.accumulation.buffer", "_grad.accumulation.out"


@dataclass
class ArtifactModel:
    """A training or evaluation model, and what its inputs and outputs mean."""

    model: onnx.ModelProto
    inputs: list[str]  # that a batch provides
    outputs: list[str]  # that a step returns
    shapes: dict[str, tuple] = field(default_factory=dict)  # input -> (type, dims; None: any)
    gradients: dict[str, str] = field(default_factory=dict)  # parameter -> its gradient
    statistics: dict[str, str] = field(default_factory=dict)  # running statistic -> its new value


def load(path: str | os.PathLike[str], role: str) -> onnx.ModelProto:
    """Return the model in a file; `role` says which one is meant, for the error."""
    path = os.fspath(path)
    if path.endswith(".ort"):
        raise DropInError(
            f"the {role} model {path} is in ORT format, which cannot be edited; give the .onnx "
            "file that generate_artifacts wrote beside it"
        )
    try:
        model = read_whole(path)
    except OSError as error:
        reason = error.strerror or "no such file"
        raise DropInError(f"the {role} model {path} cannot be read: {reason}") from error
    except OnnxGradError as error:
        raise DropInError(f"the {role} model {path} is not an ONNX model: {error}") from error
    if not model.graph.node and not model.graph.output:
        raise DropInError(f"the {role} model {path} is not an ONNX model: it has no graph")
    return model


def training_model(path: str | os.PathLike[str], parameters: Iterable[str]) -> ArtifactModel:
    """Return the training model at `path` without its accumulators."""
    model = load(path, "training")
    parameters = set(parameters)
    _drop_functions(model)
    gradients = _take_accumulators(model)
    rewrite(model)
    result = _describe(model, parameters)
    result.gradients = gradients
    result.outputs = [name for name in result.outputs if name not in gradients.values()]
    result.statistics = _take_statistics(model, parameters)
    return result


def evaluation_model(path: str | os.PathLike[str], parameters: Iterable[str]) -> ArtifactModel:
    """Return the evaluation model at `path`."""
    model = load(path, "evaluation")
    for node in model.graph.node:
        if node.op_type == "BatchNormalization" and not attributes(node).get("training_mode", 0):
            del node.output[1:]  # the old package leaves outputs that only training mode has
    rewrite(model)
    return _describe(model, set(parameters))


def _describe(model: onnx.ModelProto, parameters: set[str]) -> ArtifactModel:
    _import_only_what_is_used(model)
    _lower_file_format(model)
    graph = model.graph
    constant = {t.name for t in graph.initializer}
    inputs = [v.name for v in graph.input if v.name not in parameters | constant]
    shapes = {v.name: _shape(v) for v in graph.input}
    outputs = [v.name for v in graph.output if not v.name.endswith(DONE)]
    return ArtifactModel(model, inputs, outputs, shapes)


def _shape(value: onnx.ValueInfoProto) -> tuple:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return tensor.elem_type, None
    dims = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
    return tensor.elem_type, dims


def _import_only_what_is_used(model: onnx.ModelProto) -> None:
    """Old files import every domain of that build; stock onnxruntime does not know them all."""
    used = domains(model) | {"", "ai.onnx"}
    kept = [o for o in model.opset_import if o.domain in used and o.domain != DOMAIN]
    del model.opset_import[:]
    # ours always: a session that knows our library looks for its version
    model.opset_import.extend([*kept, helper.make_opsetid(DOMAIN, OPSET)])


def domains(model: onnx.ModelProto) -> set[str]:
    """Return the domains of the nodes of a model, those of bodies and functions included."""
    found, waiting = set(), [model.graph, *model.functions]
    while waiting:
        for node in waiting.pop().node:
            found.add(node.domain)
            for attribute in node.attribute:
                waiting.extend([attribute.g] if attribute.HasField("g") else attribute.graphs)
    return found


def _drop_functions(model: onnx.ModelProto) -> None:
    """Leave out the formulas of our own operators, which are for other sessions."""
    kept = [
        onnx.FunctionProto.FromString(f.SerializeToString())
        for f in model.functions
        if f.domain != DOMAIN
    ]
    del model.functions[:]
    model.functions.extend(kept)


def _lower_file_format(model: onnx.ModelProto) -> None:
    """onnx writes newer versions of its file format than onnxruntime reads; few models need them."""
    standard = [o for o in model.opset_import if o.domain in ("", "ai.onnx")]
    if standard:
        needed = max(helper.find_min_ir_version_for(standard), FORMAT_OF_EVERY_RUNTIME)
        model.ir_version = min(model.ir_version, needed)


# ---- gradients


def _take_accumulators(model: onnx.ModelProto) -> dict[str, str]:
    """Make gradients outputs in place of their accumulators; return parameter -> gradient."""
    graph = model.graph
    buffers = {v.name: v for v in graph.input if v.name.endswith(BUFFER)}
    found: dict[str, str] = {}
    nodes, taken = [], {v.name for v in (*graph.input, *graph.output)}
    for node in graph.node:
        if node.op_type != ACCUMULATOR or node.input[0] not in buffers:
            nodes.append(node)
            continue
        buffer, gradient = node.input[0], node.input[1]
        if gradient in taken:  # an output is a value of its own
            nodes.append(helper.make_node("Identity", [gradient], [f"{buffer}.value"]))
            gradient = f"{buffer}.value"
        taken.add(gradient)
        found[buffer.removesuffix(BUFFER)] = gradient
    inputs = [v for v in graph.input if v.name not in buffers and v.name != RESET]
    outputs = [v for v in graph.output if not v.name.endswith(DONE)]
    for parameter, gradient in found.items():
        value = onnx.ValueInfoProto()
        value.CopyFrom(buffers[parameter + BUFFER])
        value.name = gradient
        outputs.append(value)
    for kept, now in ((graph.node, nodes), (graph.input, inputs), (graph.output, outputs)):
        now = list(now)
        del kept[:]
        kept.extend(now)
    return found


# ---- running statistics


def _take_statistics(model: onnx.ModelProto, parameters: set[str]) -> dict[str, str]:
    """Make the new running statistics outputs, where the old ones are parameters."""
    graph, found = model.graph, {}
    for node in graph.node:
        if not _updates_statistics(node):
            continue
        for place in (1, 2):
            old = node.input[place + 2]
            if old in parameters and len(node.output) > place and old not in found:
                if not node.output[place]:
                    node.output[place] = f"{old}/updated"
                found[old] = node.output[place]
    present = {v.name for v in graph.output}
    infos = {v.name: v for v in graph.input}
    for old, new in found.items():
        if new not in present:
            tensor = infos[old].type.tensor_type
            value = helper.make_tensor_value_info(new, tensor.elem_type, _shape(infos[old])[1])
            graph.output.append(value)
    return found


def _updates_statistics(node: onnx.NodeProto) -> bool:
    if node.op_type == "BatchNormInternal":
        return attributes(node).get("training_mode", 1) == 1
    return node.op_type == "BatchNormalization" and attributes(node).get("training_mode", 0) == 1
