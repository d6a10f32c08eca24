"""Replacing an operator by the body that ONNX defines it with."""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from onnxgrad.graph.load import infer_shapes
from onnxgrad.graph.schemas import signature

_DOMAIN = "onnxgrad.inline"


def inline(model: ir.Model, nodes: list[ir.Node]) -> ir.Model:
    """Return `model` with each of `nodes` replaced by its function body."""
    for i, node in enumerate(nodes):
        opset = model.opset_imports.get(node.domain, 1)
        _set_defaults(node, opset)
        body = _body(node, opset)
        body.domain, body.name, body.overload = _DOMAIN, node.op_type, str(i)
        function = ir.from_proto(body)
        model.functions[function.identifier()] = function
        node.domain, node.overload = _DOMAIN, str(i)
    model.opset_imports[_DOMAIN] = 1
    model = InlinePass()(model).model
    model.opset_imports.pop(_DOMAIN, None)
    infer_shapes(model)
    return model


def _set_defaults(node: ir.Node, opset: int) -> None:
    """A body refers to attributes by name; one that the node does not set has its default."""
    for name, value in signature(node.op_type, opset, node.domain).attributes.items():
        if value is not None and name not in node.attributes:
            node.attributes.add(ir.convenience.convert_attribute(name, value))


def _body(node: ir.Node, opset: int) -> onnx.FunctionProto:
    schema = onnx.defs.get_schema(node.op_type, max_inclusive_version=opset, domain=node.domain)
    proto = onnx.FunctionProto()
    if schema.has_function:
        body = schema.get_function_with_opset_version(opset) or schema.function_body
        proto.ParseFromString(body if isinstance(body, bytes) else body.SerializeToString())
        return proto
    types = [_type(v) for v in node.inputs]
    proto.ParseFromString(
        schema.get_context_dependent_function_with_opset_version(
            opset, ir.to_proto(node).SerializeToString(), types
        )
    )
    return proto


def _type(value: ir.Value | None) -> bytes:
    if value is None or value.type is None:
        return onnx.TypeProto().SerializeToString()
    return ir.serde.serialize_type(value.type).SerializeToString()
