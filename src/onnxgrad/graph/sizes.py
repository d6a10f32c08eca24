"""Models that ask for more than they are worth: a kilobyte that names a tensor of gigabytes."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxgrad.files import limits
from onnxgrad.files.paths import printable

LONGEST_SHAPE = 10_000  # integers that onnx computes beforehand: shapes, indices, ends of slices
CARRIERS = {"Add", "Cast", "Gather", "Identity", "Mul", "Slice", "Squeeze", "Sub", "Unsqueeze"}


def check(model: ir.Model) -> None:
    """Raise LimitError for a tensor that is too large, or a loop that runs too long, whatever the data.

    A tensor that depends on constants alone has the lower limit: it comes out of nothing.
    """
    depends: set[ir.Value] = {v for graph in model.graphs() for v in graph.inputs}
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        _check_trips(node)
        if any(v in depends for v in node.inputs if v is not None) or _has_body(node):
            depends.update(node.outputs)
            kind = "tensor"
        else:
            kind = "constant"
        for value in node.outputs:
            shape = value.shape
            if shape is None or not all(isinstance(size, int) for size in shape):
                continue
            count = math.prod(shape)
            who = f"node {printable(node.name or value.name)!r} ({printable(node.op_type)})"
            limits.check(kind, count, f"{who} makes a tensor of {count:,} elements")


def joins_many(model: ir.Model) -> bool:
    """Whether Concat makes longer lists of integers than shapes are: a few doublings make gigabytes of some bytes.

    A bound by the nodes alone, before any shape is known, for the operators through which onnx carries integers.
    """
    lengths: dict[ir.Value, int] = {}
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        given = [lengths.get(v, _integers(v)) for v in node.inputs if v is not None]
        length = 0
        if node.op_type == "Concat":
            length = sum(given)
        elif node.op_type in ("Shape", "Size"):
            length = 1
        elif node.op_type in CARRIERS and given and given[0]:
            length = max(given)
        if length > LONGEST_SHAPE:
            return True
        if length:
            lengths.update(dict.fromkeys(node.outputs, length))
    return False


def _integers(value: ir.Value) -> int:
    """How many integers a constant list holds; 0 for anything else."""
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is None or tensor.dtype not in (ir.DataType.INT64, ir.DataType.INT32):
        return 0
    return tensor.size if len(tensor.shape) <= 1 else 0


def _has_body(node: ir.Node) -> bool:
    return any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values())


def _check_trips(node: ir.Node) -> None:
    """A Loop whose number of trips is written in the model, and which nothing ends before."""
    if node.op_type != "Loop" or node.domain or not node.inputs or node.inputs[0] is None:
        return
    if _ends_itself(node):
        return  # tf2onnx writes the largest number there is, and a condition
    tensor = ir.convenience.get_const_tensor(node.inputs[0])
    if tensor is None or tensor.size != 1 or tensor.dtype != ir.DataType.INT64:
        return
    trips = int(np.reshape(tensor.numpy(), -1)[0])
    limits.check("trips", trips, f"the Loop {printable(node.name)!r} makes {trips:,} trips")


def _ends_itself(node: ir.Node) -> bool:
    """Whether the body of a Loop computes if there is another trip."""
    body = node.attributes["body"].value if "body" in node.attributes else None
    if not isinstance(body, ir.Graph) or not body.outputs:
        return False
    again = body.outputs[0]
    while (made := again.producer()) is not None and made.op_type == "Identity":
        again = made.inputs[0]
    return made is not None and made.op_type != "Constant"
