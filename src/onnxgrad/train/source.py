"""The model as the caller gave it: what is exported is this file with other numbers in it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir


class Source:
    """A private copy of the caller's model, exactly as it came; external weights stay outside."""

    def __init__(self, model: Any):
        self.path: Path | None = None
        if isinstance(model, (str, os.PathLike)):
            self.path = Path(model).resolve()
            self.proto = onnx.load(str(self.path), load_external_data=False)
        elif isinstance(model, onnx.ModelProto):
            self.proto = onnx.ModelProto()
            self.proto.CopyFrom(model)
        elif isinstance(model, ir.Model):
            copy = model.clone()
            ir.external_data.load_to_model(copy)
            self.proto = ir.to_proto(copy)
        else:
            self.proto = onnx.load_model_from_string(bytes(model))
        self.tensors = dict(_tensors(self.proto.graph))

    def has(self, name: str) -> bool:
        """Say whether a tensor of this name can be written back."""
        return name in self.tensors

    def digest(self) -> str:
        """Return the SHA-256 of the graph without its weights: what a checkpoint belongs to."""
        bare = onnx.ModelProto()
        bare.CopyFrom(self.proto)
        for _, tensor in _tensors(bare.graph):
            for field in ("raw_data", "float_data", "double_data", "external_data"):
                tensor.ClearField(field)
        return hashlib.sha256(bare.SerializeToString(deterministic=True)).hexdigest()


def _tensors(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield the initializers, then the tensors in Constant nodes, of the main graph."""
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain:
            for attribute in node.attribute:
                if attribute.name == "value":
                    yield node.output[0], attribute.t
