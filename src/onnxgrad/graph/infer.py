"""Types and shapes of single nodes: ONNX's own inference, and the contracts of our operators.

A shape is a tuple whose entries are an int, a str (a dimension known by name) or None (unknown).
A shape that is None has an unknown rank. What is told here is never wrong, and often None.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

from onnxgrad.contracts import DOMAIN, contracts
from onnxgrad.graph import contrib, symbols
from onnxgrad.graph.symbols import Dims, Result
from onnxgrad.graph.symbols import dims_of as dims

__all__ = ["Dims", "dims", "is_static", "results", "tell"]

_SMALL = 4096  # elements of an integer constant: enough for any shape
NEWEST = 1 << 20  # an opset above every one that there is


def is_static(shape: Dims | None) -> bool:
    """Say whether every dimension is a number."""
    return shape is not None and all(isinstance(d, int) for d in shape)


def tell(node: ir.Node, opset: int) -> bool:
    """Fill in types and shapes of a node's outputs that are not known yet; say if any was."""
    news = False
    for value, (dtype, shape) in zip(node.outputs, results(node, opset), strict=False):
        if value.dtype is None and dtype is not None:
            value.dtype, news = dtype, True
        if value.shape is None and shape is not None:
            value.shape, news = ir.Shape(shape), True
    return news


def results(node: ir.Node, opset: int) -> list[Result]:
    """Return (dtype, shape) of every output of a node; `opset` is that of the node's domain."""
    if node.domain == DOMAIN and node.op_type in contracts():
        return symbols.results(contracts()[node.op_type], node.inputs)
    if contrib.is_known(node):
        return contrib.results(node, lambda standard: results(standard, NEWEST))
    if not onnx.defs.has(node.op_type, domain=node.domain, max_inclusive_version=opset):
        return [(None, None)] * len(node.outputs)
    schema = onnx.defs.get_schema(node.op_type, max_inclusive_version=opset, domain=node.domain)
    found = _inferred(schema, node, opset)
    return [
        (dtype or _dtype(schema, node, i), shape if shape is not None else _rank(node, i))
        for i, (dtype, shape) in enumerate(found)
    ]


def _inferred(schema: onnx.defs.OpSchema, node: ir.Node, opset: int) -> list[Result]:
    """What ONNX's own inference says; nothing where it refuses, since it never needs to be known."""
    unknown: list[Result] = [(None, None)] * len(node.outputs)
    kinds = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    if any(a.type in kinds for a in node.attributes.values()):
        return unknown  # bodies are inferred with their model
    proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
    proto.input.extend("" if v is None else f"i{i}" for i, v in enumerate(node.inputs))
    # an output that a node leaves out has the name ""; one that has no name yet has None
    proto.output.extend("" if v.name == "" else f"o{i}" for i, v in enumerate(node.outputs))
    given = {f"i{i}": v for i, v in enumerate(node.inputs) if v is not None}
    types = {name: _type(v) for name, v in given.items() if v.type is not None}
    data = {name: _data(v) for name, v in given.items() if _is_small(v)}
    try:
        proto.attribute.extend(ir.serde.serialize_attribute(a) for a in node.attributes.values())
        found = onnx.shape_inference.infer_node_outputs(
            schema, proto, types, data, opset_imports=[onnx.helper.make_opsetid(node.domain, opset)]
        )
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError):
        return unknown
    except (TypeError, ValueError, KeyError, IndexError):
        return unknown  # a malformed node; the walk names it if it is in the way
    return [_result(found.get(f"o{i}")) for i in range(len(node.outputs))]


def _type(value: ir.Value) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    ir.serde.serialize_type_into(proto, value.type)
    if value.shape is not None and isinstance(value.type, ir.TensorType):
        ir.serde.serialize_shape_into(proto, value.shape)
    return proto


def _is_small(value: ir.Value) -> bool:
    tensor = None if value.is_graph_input() else value.const_value
    return tensor is not None and tensor.dtype.is_integer() and tensor.size <= _SMALL


def _data(value: ir.Value) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(value.const_value.numpy())


def _result(proto: onnx.TypeProto | None) -> Result:
    if proto is None or not proto.HasField("tensor_type"):
        return None, None
    tensor = proto.tensor_type
    dtype = ir.DataType(tensor.elem_type) if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return dtype, None
    sizes = (
        d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim
    )
    return dtype, tuple(sizes)


def _dtype(schema: onnx.defs.OpSchema, node: ir.Node, output: int) -> ir.DataType | None:
    """The type that the schema's letters tell where inference gave up."""
    kind = schema.outputs[min(output, len(schema.outputs) - 1)].type_str
    for i, value in enumerate(node.inputs):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        tensor = value is not None and isinstance(value.type, ir.TensorType)
        if tensor and value.dtype is not None and formal.type_str == kind:
            return value.dtype
    return None


def _rank(node: ir.Node, output: int) -> Dims | None:
    """Ranks that ONNX leaves open: that of a convolution is its weights', of Reshape its target's."""
    if output or node.domain or len(node.inputs) < 2 or node.inputs[1] is None:
        return None
    second = dims(node.inputs[1])
    if node.op_type in ("Conv", "ConvTranspose") and second is not None:
        return (None,) * len(second)
    known = node.op_type == "Reshape" and second is not None and len(second) == 1
    return (None,) * second[0] if known and isinstance(second[0], int) else None


def without_or_with_ones(shape: tuple[int, ...], dims: tuple) -> tuple[int, ...] | None:
    """Return the shape for `dims` that an array has without axes of length 1, or with more of them.

    Rows stay rows. None where other axes differ, too, or where several shapes fit.

    >>> without_or_with_ones((8, 1), ("N",)), without_or_with_ones((8, 5), ("N", 1, "T"))
    ((8,), (8, 1, 5))
    >>> without_or_with_ones((8, 3), ("N",)) is None
    True
    """
    if not shape or not dims:
        return None
    found = _with_ones(shape[1:], dims[1:])
    return (shape[0], *found.pop()) if len(found) == 1 else None


def _with_ones(shape: tuple[int, ...], dims: tuple) -> set[tuple[int, ...]]:
    if not shape and not dims:
        return {()}
    found: set[tuple[int, ...]] = set()
    if shape and dims and (shape[0] == dims[0] or not isinstance(dims[0], int)):
        found |= {(shape[0], *rest) for rest in _with_ones(shape[1:], dims[1:])}
    if shape and shape[0] == 1:
        found |= _with_ones(shape[1:], dims)
    if dims and dims[0] == 1:
        found |= {(1, *rest) for rest in _with_ones(shape, dims[1:])}
    return found
