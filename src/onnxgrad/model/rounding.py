"""Where numbers are rounded to 8 bits while a model runs: by nodes of the file, or by the session that runs it.

A number between two steps of 8 bits may become either: two graphs that say the same give other outputs.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx

ROUNDED = 0.1  # of the largest output: how far the rounding of a file's own nodes may move it
DYNAMIC = ("DynamicQuantizeLinear", "DynamicQuantizeMatMul")
LEVEL, EIGHT_BITS = "accuracy_level", 4  # of MatMulNBits: round what it reads


def rounds_by_itself(proto: onnx.ModelProto) -> bool:
    """Say whether nodes of the file round activations as they run."""
    return any(node.op_type in DYNAMIC for node in proto.graph.node)


def rounds_in_sessions(proto: onnx.ModelProto) -> bool:
    """Say whether onnxruntime rounds what products read, though the file asks for no such operator.

    It does for MatMulNBits of accuracy level 4, and where a matrix stands behind a DequantizeLinear.
    """
    stored = {n.output[0] for n in proto.graph.node if n.op_type == "DequantizeLinear"}
    products = (n for n in proto.graph.node if n.op_type == "MatMul")
    return any(True for _ in _levels(proto)) or any(n.input[1] in stored for n in products)


def without_rounding(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its products in float32; the session must leave DequantizeLinear alone, too."""
    for level in _levels(proto):
        level.i = 0
    return proto


def _levels(proto: onnx.ModelProto) -> Iterator[onnx.AttributeProto]:
    for node in proto.graph.node:
        if node.op_type == "MatMulNBits":
            yield from (a for a in node.attribute if a.name == LEVEL and a.i == EIGHT_BITS)
