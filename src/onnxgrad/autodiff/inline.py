"""Replacing an operator by the body that ONNX defines it with."""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from onnxgrad.graph.load import infer
from onnxgrad.graph.schemas import signature

_DOMAIN = "onnxgrad.inline"


def inline(model: ir.Model, nodes: list[ir.Node]) -> ir.Model:
    """Return `model` with each of `nodes` replaced by its body; each must have one."""
    for i, node in enumerate(nodes):
        opset = model.opset_imports.get(node.domain, 1)
        _set_defaults(node, opset)
        proto = body(node, opset)
        _fit_outputs(proto, node)
        proto.domain, proto.name, proto.overload = _DOMAIN, node.op_type, str(i)
        function = ir.from_proto(proto)
        model.functions[function.identifier()] = function
        node.domain, node.overload = _DOMAIN, str(i)
    model.opset_imports[_DOMAIN] = 1
    model = InlinePass()(model).model
    model.opset_imports.pop(_DOMAIN, None)
    infer(model)
    return model


def body(node: ir.Node, opset: int) -> onnx.FunctionProto | None:
    """Return the function that ONNX defines a node's operator by, or None where it has none."""
    if not onnx.defs.has(node.op_type, domain=node.domain, max_inclusive_version=opset):
        return None
    schema = onnx.defs.get_schema(node.op_type, max_inclusive_version=opset, domain=node.domain)
    found = _fixed(schema, opset) or _for_types(schema, opset, node)
    return found if found is not None and found.node and _is_valid(found, opset) else None


def _fixed(schema: onnx.defs.OpSchema, opset: int) -> onnx.FunctionProto | None:
    """A body that is the same for every node."""
    fitting = [v for v in schema.function_opset_versions if v <= opset]
    if not schema.has_function or not fitting:
        return None
    found = schema.get_function_with_opset_version(max(fitting))
    proto = onnx.FunctionProto()
    proto.ParseFromString(found if isinstance(found, bytes) else found.SerializeToString())
    return proto


def _for_types(schema: onnx.defs.OpSchema, opset: int, node: ir.Node) -> onnx.FunctionProto | None:
    """A body that depends on the node's attributes, and on its inputs' types."""
    fitting = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if not fitting:
        return None
    proto = onnx.FunctionProto()
    proto.ParseFromString(
        schema.get_context_dependent_function_with_opset_version(
            max(fitting), ir.to_proto(node).SerializeToString(), [_type(v) for v in node.inputs]
        )
    )
    if not proto.input:  # some bodies come without their signature, which is the operator's own
        proto.input.extend(f.name for f in schema.inputs)
        proto.output.extend(f.name for f in schema.outputs)
    return proto


def _is_valid(proto: onnx.FunctionProto, opset: int) -> bool:
    """Say whether the body, written for an older opset, means the same in the model's opset."""
    own = next((i.version for i in proto.opset_import if i.domain == ""), opset)
    return own == opset or all(
        signature(n.op_type, own, n.domain) == signature(n.op_type, opset, n.domain)
        or _same_names(n.op_type, own, opset)
        for n in proto.node
    )


def _same_names(op_type: str, own: int, opset: int) -> bool:
    """A newer version with the same names differs in the types it takes only."""
    a, b = signature(op_type, own), signature(op_type, opset)
    return a is not None and b is not None and a.inputs == b.inputs and a.attributes == b.attributes


def _set_defaults(node: ir.Node, opset: int) -> None:
    """A body refers to attributes by name; one that the node does not set has its default."""
    for name, value in signature(node.op_type, opset, node.domain).attributes.items():
        if value is not None and name not in node.attributes:
            node.attributes.add(ir.convenience.convert_attribute(name, value))


def _fit_outputs(proto: onnx.FunctionProto, node: ir.Node) -> None:
    """Drop the outputs that the node leaves out, whose part of the body may be missing."""
    made = {name for inner in proto.node for name in inner.output}
    kept = list(proto.output)[: len(node.outputs)]
    del proto.output[:]
    for name, value in zip(kept, node.outputs, strict=True):
        if name not in made and not value.uses():
            proto.node.append(onnx.helper.make_node("Identity", [kept[0]], [name]))
        proto.output.append(name)


def _type(value: ir.Value | None) -> bytes:
    if value is None or value.type is None:
        return onnx.TypeProto().SerializeToString()
    return ir.serde.serialize_value(value).type.SerializeToString()
