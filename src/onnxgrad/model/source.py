"""The model as the caller gave it: what is exported is this file with other numbers in it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxgrad.files.external import FileTensor, Folder, is_external
from onnxgrad.files.hub import is_hub
from onnxgrad.files.models import ModelFile, copied, read_proto, to_ir
from onnxgrad.files.paths import is_path
from onnxgrad.files.tensors import graphs
from onnxgrad.graph.scopes import unique_names
from onnxgrad.model.modes import to_inference


class OriginalModel:
    """A private copy of the caller's model, exactly as it came; external weights stay outside."""

    def __init__(self, model: Any):
        self.path: Path | None = None
        self._digest: str | None = None
        if is_hub(model):
            model = ModelFile(model)
        if isinstance(model, ir.Model):
            copy = model.clone()
            ir.external_data.load_to_model(copy)
            self.proto = ir.to_proto(copy)
        else:
            # as it was named, not as it really lies: external data is found by its own name beside it
            self.path = Path(os.path.abspath(model)) if is_path(model) else None
            self.proto = read_proto(model)
            if isinstance(model, (onnx.ModelProto, ModelFile)):
                self.proto = copied(self.proto)
        # the nodes that the file has in training form
        self.trained_form = to_inference(self.proto, lambda t: self._read(t).numpy())
        unique_names(self.proto)
        self.refresh()

    def refresh(self) -> None:
        """Look at the proto anew, after a change of its tensors."""
        # what can be written back, in the order of the file
        self.tensors = dict(self.tensors_of(self.proto))

    def as_ir(self) -> ir.Model:
        """Return the model as a graph; external weights are read from beside its file."""
        return to_ir(self.proto, self.path if self.path is not None else self.proto)

    def array(self, name: str) -> np.ndarray:
        """Return the numbers of a tensor of the main graph."""
        return self._tensor(name).numpy()

    def raw(self, name: str) -> bytes:
        """Return the numbers of a tensor as the bytes that a file holds."""
        return self._tensor(name).tobytes()

    def _tensor(self, name: str) -> ir.TensorProtocol:
        return self._read(self.tensors[name])

    def _read(self, tensor: onnx.TensorProto) -> ir.TensorProtocol:
        """Return a tensor with its numbers, which may lie in a data file."""
        known = ir.from_proto(tensor)
        return FileTensor.of(known, Folder(self.path)) if is_external(tensor) else known

    def digest(self) -> str:
        """Return the SHA-256 of the graph without its weights: what a checkpoint belongs to."""
        if self._digest is None:
            self._digest = self._hash()
        return self._digest

    def _hash(self) -> str:
        bare = copied(self.proto)
        for _, tensor in self.tensors_of(bare):
            for field in ("raw_data", "float_data", "double_data", "external_data"):
                tensor.ClearField(field)
        return hashlib.sha256(bare.SerializeToString(deterministic=True)).hexdigest()

    @staticmethod
    def tensors_of(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorProto]]:
        """Yield the initializers, then the tensors in Constant nodes, of each graph, the main one first."""
        for graph in graphs(model.graph):
            for tensor in graph.initializer:
                yield tensor.name, tensor
            for node in graph.node:
                if node.op_type == "Constant" and not node.domain:
                    for attribute in node.attribute:
                        if attribute.name == "value":
                            yield node.output[0], attribute.t
