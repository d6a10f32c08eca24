"""From whatever a caller calls a model to a private, checked `onnx_ir.Model`, and back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass, ShapeInferencePass

from onnxgrad.files import external
from onnxgrad.files.models import read_ir, sort
from onnxgrad.files.paths import root
from onnxgrad.graph import (
    batch_norm,
    below_zero,
    bodies,
    dynamic,
    repeats,
    schemas,
    sequences,
    sizes,
    unroll,
)
from onnxgrad.graph import infer as shapes
from onnxgrad.graph.constants import TABLE, Constants
from onnxgrad.graph.layout import time_first
from onnxgrad.graph.nodes import remove_unused

# The builder emits ScatterElements(reduction="add"), which is as old as this opset.
FLOOR = 16
# A protobuf message ends at 2 GB; weights above this stay in their external files.
INLINE_LIMIT = 1 << 30
LARGE = 1 << 16  # bytes of a weight that is worth keeping out of messages


def load(model: Any) -> ir.Model:
    """Return a private copy of `model`: functions inlined, sorted, opset >= 16, shapes inferred.

    `model` is a path, the bytes of a file, an `onnx.ModelProto` or an `onnx_ir.Model`.
    Raises ValueError where it is none of these, or is not a well-formed graph.
    """
    copy = model.clone() if isinstance(model, ir.Model) else read_ir(model)
    _check_graph(copy)
    if copy.functions:
        copy = InlinePass()(copy).model
    sort(copy)
    below_zero.forget(copy)  # the converter of opsets would count with them
    copy = _raise_opset(copy)
    time_first(copy)
    bodies.prepare(copy)
    _infer_outputs(copy)
    sizes.check(copy)
    repeats.infer_bodies(copy, infer)
    dynamic.fuse(copy)
    if unroll.unroll(copy):
        while bodies.take_known_branches(copy.graph):  # branches inside of branches
            pass
        infer(copy)
    if bodies.take_known_branches(copy.graph) | sequences.resolve(copy):
        infer(copy)
        sequences.resolve(copy)  # lists that another list, or a branch, was hiding
    sizes.check(copy)
    return copy


def finish(model: ir.Model, like: Any) -> ir.Model | onnx.ModelProto:
    """Return `model` in the kind that the caller passed: `onnx_ir.Model` for one, else a proto."""
    # before version 4 every initializer had to be an input as well, and those of a gradient are not
    model.ir_version = max(model.ir_version or 0, 4)
    if isinstance(like, ir.Model):
        return model
    total = 0
    for value in model.graph.initializers.values():
        total += value.const_value.nbytes if value.const_value is not None else 0
    if total < INLINE_LIMIT:
        ir.external_data.load_to_model(model)
    try:
        return ir.to_proto(model)
    except ir.serde.SerdeError as error:
        raise ValueError(f"the model is malformed: {root(error)}") from error


def _infer_outputs(model: ir.Model) -> None:
    """Infer shapes; of the shapes that outputs are declared with, keep what the run keeps.

    onnxruntime only warns of a declared rank or size that is wrong; a cotangent input of that shape
    it would refuse, and a gradient that counts on it would be wrong.
    """
    outputs = [v for graph in model.graphs() for v in graph.outputs]
    declared = {v: v.shape for v in outputs if v.producer() is not None}
    for value in declared:
        value.shape = None
    bodies.forget_shapes(model)
    infer(model)
    free = [
        i for v in model.graph.inputs for i, d in enumerate(v.shape or ()) if type(d) is not int
    ]
    batch, others = bool(free), any(free)
    for value, shape in declared.items():
        if shape is not None:
            value.shape = _kept(shapes.dims(value), shape, batch, others)


def _kept(found: shapes.Dims | None, declared: ir.Shape, batch: bool, others: bool) -> ir.Shape:
    """Merge a shape that was inferred with the one that an output is declared with.

    Exporters declare the sizes of the example that they traced. Where inference does not tell a
    size, a declared number holds only if no input may have another one: `batch` says that some
    size of an input is free, `others` that one behind the first axis is.
    """
    if found is not None and len(found) != len(declared):
        return ir.Shape(found)
    if found is None and all(size == 1 for size in declared):
        return declared  # a number in all but name, such as a loss
    sizes: list[int | str | None] = []
    for i, size in enumerate(declared):
        known = None if found is None else found[i]
        if isinstance(known, int) or not isinstance(size, int):
            sizes.append(known if isinstance(known, int) else size.value)
        else:
            sizes.append(known if (others if i else batch) else size)
    return ir.Shape(sizes)


def infer(model: ir.Model) -> None:
    """Fill in the types and shapes that can be told, and fold the integers they tell."""
    _infer_shapes(model)
    changed = [
        _fold_integers(model.graph, graph) | _complete(model, graph) for graph in model.graphs()
    ]
    if any(changed):
        _infer_shapes(model)


def _infer_shapes(model: ir.Model) -> None:
    log = logging.getLogger("onnx_ir.passes.common.shape_inference")
    level = log.level
    log.setLevel(logging.ERROR)
    order = list(model.graph.initializers)
    weights = _set_constants_aside(model)  # the pass itself puts initializers aside
    try:
        known = not sizes.joins_many(
            model
        )  # numbers are carried along, except where they would double for ever
        infer = ShapeInferencePass(check_type=False, strict_mode=False, data_prop=known)
        below_zero.inferred(model, infer)
    finally:
        log.setLevel(level)
        _put_back(model, weights)
    _restore_order(model.graph, order)
    sequences.declare(model)
    for value in model.graph.initializers.values():
        if value.const_value is not None:
            value.dtype, value.shape = value.const_value.dtype, ir.Shape(value.const_value.shape)


def _restore_order(graph: ir.Graph, order: list[str]) -> None:
    """The pass puts large initializers aside, and back at the end; gradients follow the model's order."""
    if list(graph.initializers) != order:
        values = [graph.initializers.pop(name) for name in order]
        for value in values:
            graph.register_initializer(value)


def _complete(model: ir.Model, graph: ir.Graph) -> bool:
    """Add what ONNX leaves open and we can tell, such as the rank of a convolution."""
    found = False
    for node in graph:
        first = node.outputs[0] if node.outputs else None
        if first is not None and (first.shape is None or first.dtype is None):
            found |= shapes.tell(node, model.opset_imports.get(node.domain, 1))
    return found


def _fold_integers(main: ir.Graph, graph: ir.Graph) -> bool:
    """Write integer chains that do not depend on the run as constants; say whether any changed.

    Inference cannot see through all of them (torch.onnx computes axes by Mod and Slice), and
    then loses the rank of what they reshape.
    """
    constants, folded = Constants(()), []
    for node in graph:
        if node.op_type not in TABLE or node.domain or len(node.outputs) != 1:
            continue
        value = node.outputs[0]
        if value.dtype != ir.DataType.INT64 or value.is_graph_output():
            continue
        array = constants.array(value)
        if array is not None:
            folded.append((value, array))
    for value, array in folded:
        new = ir.Value(name=f"{value.name}/folded", const_value=ir.tensor(array.astype(np.int64)))
        new.dtype, new.shape = ir.DataType.INT64, ir.Shape(array.shape)
        new.const_value.name = new.name
        main.register_initializer(new)
        ir.convenience.replace_all_uses_with(value, new)
    remove_unused([value.producer() for value, _ in folded])
    return bool(folded)


def _check_graph(model: ir.Model) -> None:
    """Every value that a node reads is an input, an initializer or made by a node."""
    graph = model.graph
    inputs = {v for each in model.graphs() for v in each.inputs}
    for node in ir.traversal.RecursiveGraphIterator(graph):
        _check_node(node, model.opset_imports.get(node.domain))
        for value in node.inputs:
            known = (
                value is None
                or value.name == ""
                or value.producer() is not None
                or value in inputs
                or value.const_value is not None
            )
            if not known:
                raise ValueError(
                    f"node {node.name or node.op_type!r} reads {value.name!r}, "
                    "which no node, input or initializer of the graph provides"
                )
    for value in graph.outputs:
        if value.producer() is None and value not in inputs and value.const_value is None:
            raise ValueError(f"graph output {value.name!r} is made by no node of the graph")


def _check_node(node: ir.Node, opset: int | None) -> None:
    """A node of ONNX has as many inputs as its operator takes, and the attributes it must have."""
    if not node.outputs:
        raise ValueError(
            f"node {node.name!r} ({node.op_type}) has no output, expected at least one"
        )
    sig = None if opset is None else schemas.signature(node.op_type, opset, node.domain)
    if sig is None:
        return
    who = f"node {(node.name or node.outputs[0].name)!r} ({node.op_type})"
    wrong = sig.wrong_inputs(node.inputs) or sig.missing_attribute(node.attributes)
    if wrong:
        raise ValueError(f"{who} {wrong}")
    bodies.check(node, who)


def _raise_opset(model: ir.Model) -> ir.Model:
    opset = model.opset_imports.get("", FLOOR)
    if opset >= FLOOR:
        model.opset_imports.setdefault("", FLOOR)
        return model
    weights = _set_aside(model)
    try:
        proto = ir.to_proto(model)
        if opset < batch_norm.SINCE:
            batch_norm.modernise(proto)
        converted = onnx.version_converter.convert_version(proto, FLOOR)
    except Exception as error:
        raise ValueError(
            _unknown_operator(model)
            or f"the model is of opset {opset} and cannot be brought to opset {FLOOR}: {error}"
        ) from error
    finally:
        _put_back(model, weights)
    result = ir.from_proto(converted)
    _put_back(result, weights)
    external.rebind(result, like=model)
    if opset < 11:
        for node in ir.traversal.RecursiveGraphIterator(result.graph):
            _keep_old_coordinates(node)
    return result


def _set_aside(model: ir.Model) -> dict[str, ir.TensorProtocol]:
    """Leave large weights out of a message, and return them: the converter would copy each six times over."""
    found = _set_constants_aside(model)
    for name, value in model.graph.initializers.items():
        if _is_large(value.const_value):
            found[name] = value.const_value
            value.const_value = _stand_in(value.const_value, name)
    return found


def _set_constants_aside(model: ir.Model) -> dict[str, ir.TensorProtocol]:
    """The same for large weights in Constant nodes, where Paddle's converter keeps them."""
    found = {}
    for node in _constants(model):
        name, tensor = node.outputs[0].name, node.attributes["value"].value
        if _is_large(tensor):
            found[name] = tensor
            node.attributes["value"] = ir.AttrTensor("value", _stand_in(tensor, name))
    return found


def _put_back(model: ir.Model, weights: Mapping[str, ir.TensorProtocol]) -> None:
    for name, tensor in weights.items():
        if name in model.graph.initializers:
            model.graph.initializers[name].const_value = tensor
    for node in _constants(model):
        name = node.outputs[0].name
        if name in weights:
            node.attributes["value"] = ir.AttrTensor("value", weights[name])


def _constants(model: ir.Model) -> list[ir.Node]:
    return [
        n
        for n in model.graph
        if n.op_type == "Constant" and not n.domain and "value" in n.attributes
    ]


def _is_large(tensor: ir.TensorProtocol | None) -> bool:
    floats = tensor is not None and tensor.dtype.is_floating_point()
    return floats and tensor.nbytes >= LARGE and not isinstance(tensor, ir.ExternalTensor)


def _stand_in(tensor: ir.TensorProtocol, name: str) -> ir.ExternalTensor:
    return ir.ExternalTensor("aside", 0, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=name)


def _unknown_operator(model: ir.Model) -> str:
    """Name the first node of ONNX's own domain that is none of its operators; "" where all are."""
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if not node.domain and not schemas.versions(node.op_type):
            who = f"node {(node.name or node.outputs[0].name)!r} ({node.op_type})"
            return f"{who} is no operator of ONNX: the exporter left it as it was, and nothing can run the file"
    return ""


def _keep_old_coordinates(node: ir.Node) -> None:
    """Before 11 Resize and Upsample read at x / scale, rounded down; the converter forgets it."""
    if node.op_type == "Resize" and "coordinate_transformation_mode" not in node.attributes:
        node.attributes.add(ir.AttrString("coordinate_transformation_mode", "asymmetric"))
        node.attributes.add(ir.AttrString("nearest_mode", "floor"))
