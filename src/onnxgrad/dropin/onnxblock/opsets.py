"""Keeping the opset of the caller's model in the training model, where the gradient allows it."""

from __future__ import annotations

import onnx

from onnxgrad.graph import batch_norm
from onnxgrad.graph.load import FLOOR

# From here to FLOOR operators only gained types and optional attributes, RoiAlign excepted.
COMPATIBLE_FROM = 13


def default_import(model: onnx.ModelProto) -> onnx.OperatorSetIdProto | None:
    """Return the import of ONNX's own operators."""
    return next((o for o in model.opset_import if o.domain in ("", "ai.onnx")), None)


def raised(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy that says it is of opset FLOOR, where that changes no meaning."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    entry = default_import(copy)
    regions = any(n.op_type == "RoiAlign" and not n.domain for n in copy.graph.node)
    if entry is not None and COMPATIBLE_FROM <= entry.version < FLOOR and not regions:
        if entry.version < batch_norm.SINCE:
            batch_norm.modernise(copy)
        entry.version = FLOOR
    return copy


def keep(training: onnx.ModelProto, base: onnx.ModelProto) -> None:
    """Give `training` the opset of `base` again, if every node of it is valid there."""
    entry, wanted = default_import(training), default_import(base)
    if entry is None or wanted is None or not COMPATIBLE_FROM <= wanted.version < entry.version:
        return
    version, entry.version = entry.version, wanted.version
    try:
        onnx.checker.check_model(training)
    except onnx.checker.ValidationError:
        entry.version = version
