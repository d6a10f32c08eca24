"""Every tensor that a model holds, wherever, and whether its bytes are as many as its shape says."""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx
import onnx_ir as ir

from onnxgrad.errors import ModelError
from onnxgrad.files.paths import printable

LARGEST = 1 << 60  # elements; below it no product of a size and a width leaves 64 bits
_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")


Part = onnx.GraphProto | onnx.FunctionProto


def graphs(*roots: Part) -> Iterator[Part]:
    """The graphs and functions given, and the graphs inside their nodes."""
    waiting = list(roots)
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    waiting.append(attribute.g)
                waiting.extend(attribute.graphs)


def nodes(*roots: Part) -> list[onnx.NodeProto]:
    """The nodes of the graphs and functions given, with those of graphs inside them."""
    return [node for graph in graphs(*roots) for node in graph.node]


def tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor: initializers and attributes, dense and sparse, of every graph and function."""
    for graph in graphs(model.graph, *model.functions):
        if isinstance(graph, onnx.GraphProto):
            yield from graph.initializer
            yield from _parts(graph.sparse_initializer)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
                if attribute.HasField("sparse_tensor"):
                    yield from _parts([attribute.sparse_tensor])
                yield from _parts(attribute.sparse_tensors)


def _parts(sparse) -> Iterator[onnx.TensorProto]:
    for tensor in sparse:
        yield tensor.values
        yield tensor.indices


def element_count(tensor: onnx.TensorProto) -> int:
    """The number of elements. Raises ModelError for a shape that no tensor has."""
    who = f"tensor {printable(tensor.name)!r}"
    if any(d < 0 for d in tensor.dims):
        raise ModelError(
            f"{who} has the shape {list(tensor.dims)[:16]}, expected sizes of 0 or more"
        )
    count = math.prod(tensor.dims)
    if count > LARGEST or math.prod(d for d in tensor.dims if d) > LARGEST:
        raise ModelError(f"{who} has the shape {list(tensor.dims)[:16]}: no memory holds that")
    return count


def byte_size(tensor: onnx.TensorProto) -> int:
    """The bytes of a tensor's numbers. Raises ModelError for a type that has none."""
    kind = element_type(tensor)
    if kind == ir.DataType.STRING:
        raise ModelError(f"tensor {printable(tensor.name)!r} is of text, which has no raw bytes")
    return -(-element_count(tensor) * kind.bitwidth // 8)


def element_type(tensor: onnx.TensorProto) -> ir.DataType:
    """The type of the elements, as one that ONNX has."""
    try:
        kind = ir.DataType(tensor.data_type)
    except ValueError:
        kind = ir.DataType.UNDEFINED
    if kind == ir.DataType.UNDEFINED:
        raise ModelError(
            f"tensor {printable(tensor.name)!r} has the element type {tensor.data_type}, "
            "which ONNX does not have"
        )
    return kind


def check(tensor: onnx.TensorProto) -> None:
    """Refuse a tensor whose bytes, or numbers, are not as many as its shape says."""
    kind, count = element_type(tensor), element_count(tensor)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return
    who = f"tensor {printable(tensor.name)!r} of shape {list(tensor.dims)}"
    if tensor.HasField("raw_data"):
        size = byte_size(tensor)
        if len(tensor.raw_data) != size:
            raise ModelError(f"{who} has {len(tensor.raw_data):,} bytes, expected {size:,}")
        return
    found = max(len(getattr(tensor, field)) for field in _FIELDS)
    if kind.bitwidth < 8 if kind != ir.DataType.STRING else False:
        expected = {-(-count * kind.bitwidth // 8), -(-count * kind.bitwidth // 32), count}
    elif kind in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        expected = {2 * count}
    else:
        expected = {count}
    if found not in expected:
        raise ModelError(f"{who} has {found:,} numbers, expected {count:,}")
