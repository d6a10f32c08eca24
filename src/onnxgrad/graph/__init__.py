"""Helpers over onnx-ir: loading, schemas, and the builder that writes nodes. Knows no gradient."""

from onnxgrad.graph.builder import Builder, ShapeUnknown
from onnxgrad.graph.load import finish, load
from onnxgrad.graph.schemas import Signature, signature

__all__ = ["Builder", "ShapeUnknown", "Signature", "finish", "load", "signature"]
