"""Half precision in, float32 for the training, half precision out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from onnxgrad.errors import ExportError
from onnxgrad.files.models import to_ir
from onnxgrad.model.change import Change, Draft
from onnxgrad.model.source import OriginalModel
from onnxgrad.notes import Note

HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_TYPED = ("to", "dtype", "output_dtype", "saturate_dtype")  # attributes that name a type
# How far a file in half precision may lie from its float32 original, relative to the largest output.
_TOLERANCE = {ir.DataType.FLOAT16: 2e-2, ir.DataType.BFLOAT16: 1e-1}


class Widen(Change):
    """Trains a float16 or bfloat16 model in float32; the file gets its own type back.

    The float32 numbers are what the optimizer changes and a checkpoint keeps: a step is often
    smaller than what half precision can tell apart.
    """

    def __init__(self, keep_float32: bool = False):
        self.keep_float32 = keep_float32
        self.types: list[ir.DataType] = []

    def apply(self, model: ir.Model) -> None:
        self.types = widen(model)

    def describe(self) -> Iterable[Note]:
        for dtype in self.types:
            kind = dtype.name.lower()
            back = "and is written in float32" if self.keep_float32 else f"and is written in {kind}"
            change = "" if self.keep_float32 else "--keep-float32 writes float32"
            yield Note(
                "precision", kind, f"the model is {kind}: it trains in float32 {back}", change
            )

    def write_back(self, draft: Draft) -> None:
        if not self.types:
            return
        if self.keep_float32:
            draft.proto = widened(draft.proto, draft.path)
            return
        kinds = {n: ir.DataType(t.data_type) for n, t in OriginalModel.tensors_of(draft.proto)}
        for name, array in draft.tensors.items():
            dtype = kinds.get(name)
            if dtype in HALVES:
                draft.tensors[name] = narrowed(name, array, dtype)
                draft.held[name] = draft.tensors[name].astype(np.float32)
        draft.tolerance = max([draft.tolerance, *(_TOLERANCE[t] for t in self.types)])
        if ir.DataType.BFLOAT16 in self.types:  # onnxruntime has few of its kernels
            draft.as_run = widened


def widened(proto: onnx.ModelProto, path: Path | None = None) -> onnx.ModelProto:
    """Return a model with every half-precision number of it in float32; others may lie beside `path`."""
    model = to_ir(proto, proto if path is None else path)
    widen(model)
    return ir.to_proto(model)


def narrowed(name: str, array: np.ndarray, dtype: ir.DataType) -> np.ndarray:
    """Return an array rounded to half precision. Raises ExportError where a number is too large."""
    with np.errstate(over="ignore"):
        small = array.astype(dtype.numpy())
    lost = np.isfinite(array) & ~np.isfinite(small.astype(np.float32))
    if lost.any():
        worst = array[lost][0]
        raise ExportError(
            f"weight {name!r} holds {worst:.6g}, which {dtype.name.lower()} cannot hold; "
            "write the model with keep_float32 (--keep-float32)"
        )
    return small


def widen(model: ir.Model) -> list[ir.DataType]:
    """Turn every half-precision value of a model into float32; return the types that were there."""
    found: dict[ir.DataType, None] = {}
    graphs = [*model.graphs(), *model.functions.values()]
    for graph in graphs:
        for value in getattr(graph, "initializers", {}).values():
            if value.dtype in HALVES and value.const_value is not None:
                value.const_value = _wide(value.const_value)
        for node in graph:
            for attribute in list(node.attributes.values()):
                _widen_attribute(node, attribute)
        values = [*graph.inputs, *(v for node in graph for v in node.outputs)]
        for value in [*values, *getattr(graph, "initializers", {}).values()]:
            if value.dtype in HALVES:
                found[value.dtype] = None
                value.dtype = ir.DataType.FLOAT
    return list(found)


def _wide(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return ir.Tensor(tensor.numpy().astype(np.float32), name=tensor.name)


def _widen_attribute(node: ir.Node, attribute: ir.Attr) -> None:
    if attribute.is_ref():
        return
    if attribute.type == ir.AttributeType.TENSOR and attribute.value.dtype in HALVES:
        node.attributes[attribute.name] = ir.AttrTensor(attribute.name, _wide(attribute.value))
    halves = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    if attribute.name in _TYPED and attribute.value in halves:
        node.attributes[attribute.name] = ir.AttrInt64(attribute.name, onnx.TensorProto.FLOAT)
