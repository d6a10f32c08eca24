"""Warnings: what an export has done to a model that matters for training it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxgrad.autodiff.plan import FLOATS
from onnxgrad.graph import schemas
from onnxgrad.notes import Note

OLD_OPSET = 13
LARGE_CONSTANT = 64  # elements: smaller constants are settings, not weights


def notes(original: ir.Model, prepared: ir.Model) -> list[Note]:
    """One record for each thing worth knowing, the most important first.

    `prepared` is what is trained: integers that train through their rounding are floats there.
    """
    if not len(prepared.graph):
        return []
    found = {
        "weights in bodies": _weights_in_bodies(original),
        "dropout removed": _dropout_removed(original),
        "weights in constants": _weights_in_constants(original),
        "old opset": _old_opset(original),
        "new operators": _newest_operators(original),
    }
    return [Note(kind, "", text) for kind, text in found.items() if text]


def _weights_in_bodies(model: ir.Model) -> str:
    count, first = 0, ""
    for node in model.graph:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                tensors = attribute.value.initializers.values()
                floats = [v for v in tensors if v.dtype in FLOATS and v.const_value.size > 1]
                floats += [
                    n.outputs[0]
                    for n in attribute.value
                    if n.op_type == "Constant" and _is_weight(n)
                ]
                if floats and not first:
                    first = node.name or node.op_type
                count += len(floats)
    if not count:
        return ""
    return f"{_count(count, 'weight lies', 'weights lie')} inside the bodies of control flow (first: node {first!r})"


def _dropout_removed(model: ir.Model) -> str:
    kinds = {n.op_type for n in model.graph}
    attention = (
        "Softmax" in kinds
        and "MatMul" in kinds
        and ("LayerNormalization" in kinds or "Erf" in kinds)
    )
    if "Dropout" in kinds or not attention:
        return ""
    return "there is no Dropout: an export for inference removes it; the trainer can put it back with dropout=p"


def _weights_in_constants(model: ir.Model) -> str:
    names = [n.outputs[0].name for n in model.graph if n.op_type == "Constant" and _is_weight(n)]
    if not names or (model.producer_name or "").startswith("pytorch"):
        return ""  # PyTorch keeps no parameter there
    how_many = _count(len(names), "weight is", "weights are")
    return f"{how_many} kept in Constant nodes (first: {names[0]!r}); they train as well"


def _is_weight(node: ir.Node) -> bool:
    attribute = node.attributes.get("value")
    tensor = attribute.value if attribute is not None else None
    return (
        tensor is not None
        and tensor.dtype in FLOATS
        and int(np.prod(tensor.shape)) >= LARGE_CONSTANT
    )


def _old_opset(model: ir.Model) -> str:
    opset = model.opset_imports.get("", OLD_OPSET)
    return (
        f"opset {opset} is old; the gradient is built on a converted copy"
        if opset < OLD_OPSET
        else ""
    )


def _newest_operators(model: ir.Model) -> str:
    """Operators that no onnxruntime before 1.20 knows: those of opset 22 and later."""
    opset = model.opset_imports.get("", 1)
    young = sorted(
        {n.op_type for n in model.graph if not n.domain and _version(n.op_type, opset) >= 22}
    )
    young = [name for name in young if min(schemas.versions(name) or (0,)) >= 21]
    return f"{', '.join(young)}: only newer releases of onnxruntime have them" if young else ""


def _version(op_type: str, opset: int) -> int:
    known = [v for v in schemas.versions(op_type) if v <= opset]
    return max(known, default=0)


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
