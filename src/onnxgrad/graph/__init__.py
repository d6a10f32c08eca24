"""Helpers over onnx-ir: loading, schemas, and the builder that writes nodes. Knows no gradient."""

from onnxgrad.graph.builder import Builder
from onnxgrad.graph.load import finish, load
from onnxgrad.graph.nodes import make_input
from onnxgrad.graph.schemas import Signature, signature
from onnxgrad.graph.shapes import ShapeUnknown

__all__ = [
    "Builder",
    "ShapeUnknown",
    "Signature",
    "finish",
    "load",
    "make_input",
    "signature",
]
