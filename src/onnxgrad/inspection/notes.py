"""Warnings: what an export has done to a model that matters for training it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxgrad.autodiff.plan import FLOATS
from onnxgrad.graph import schemas
from onnxgrad.model import origin
from onnxgrad.notes import Note

OLD_OPSET = 13
_ZERO_POINTS = {("QuantizeLinear", 2), ("DequantizeLinear", 2)}
LARGE_CONSTANT = 64  # elements: smaller constants are settings, not weights


def notes(original: ir.Model, prepared: ir.Model, weights: set[str]) -> list[Note]:
    """One record for each thing worth knowing, the most important first.

    `prepared` is what is trained: integers that train through their rounding are floats there;
    `weights` are the tensors that "all" means.
    """
    if not len(prepared.graph):
        return []
    found = {
        "integer weights": _integer_weights(original, prepared),
        "weights in bodies": _weights_in_bodies(original),
        "folded batch norm": _folded_batch_norm(prepared),
        "perhaps buffers": _perhaps_buffers(prepared, weights),
        "computed weights": _computed_weights(prepared, weights),
        "dropout removed": _dropout_removed(original),
        "weights in constants": _weights_in_constants(original),
        "old opset": _old_opset(original),
        "new operators": _newest_operators(original),
    }
    return [Note(kind, "", text) for kind, text in found.items() if text]


def _integer_weights(model: ir.Model, prepared: ir.Model) -> str:
    types = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4)
    left = prepared.graph.initializers
    names = [
        n
        for n, v in model.graph.initializers.items()
        if v.dtype in types and v.const_value.size > 1 and n in left and left[n].uses()
        and not all((node.op_type, i) in _ZERO_POINTS for node, i in v.uses())
    ]  # fmt: skip
    if not names:
        return ""
    return (
        f"{_count(len(names), 'weight is', 'weights are')} of an integer type (first: {names[0]!r}) and cannot be "
        "trained; start from the float model and quantize afterwards"
    )


def _weights_in_bodies(model: ir.Model) -> str:
    count, first = 0, ""
    for node in model.graph:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                floats = [v for v in attribute.value.initializers.values() if v.dtype in FLOATS]
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


def _folded_batch_norm(model: ir.Model) -> str:
    kinds = [n.op_type for n in model.graph]
    if "Conv" not in kinds or "BatchNormalization" in kinds or "GroupNormalization" in kinds:
        return ""
    convs = [n for n in model.graph if n.op_type == "Conv"]
    if len(convs) < 4 or not all(len(n.inputs) > 2 and n.inputs[2] is not None for n in convs):
        return ""
    return (
        "every convolution has a bias and there is no BatchNormalization: it was probably folded into the weights, "
        "which train, but with a smaller learning rate"
    )


def _computed_weights(model: ir.Model, weights: set[str]) -> str:
    """Weight normalisation and the like, which the newer exporter of PyTorch computes beforehand."""
    made = {
        name: origin.computed_by(name, v.metadata_props)
        for name, v in model.graph.initializers.items()
        if name in weights
    }
    made = {name: by for name, by in made.items() if by[0]}
    if not made:
        return ""
    name, (parameter, formula) = next(iter(made.items()))
    return (
        f"{_count(len(made), 'tensor was', 'tensors were')} computed by the exporter (first: {name!r} from "
        f"{parameter!r}, by {formula}): what trains is the result, without the formula"
    )


def _perhaps_buffers(model: ir.Model, weights: set[str]) -> str:
    """PyTorch's older exporter writes parameters and buffers alike; the newer one what it computes from them."""
    tensors = {n: v for n, v in model.graph.initializers.items() if n in weights and v.uses()}
    if not (model.producer_name or "").startswith("pytorch"):
        return ""
    if any(origin.KIND in v.metadata_props for v in model.graph.initializers.values()):
        made = {n: origin.folded_parameters(v.metadata_props) for n, v in tensors.items()}
        names = [n for n, of in made.items() if of and not any(map(origin.is_a_layers, of))]
    else:
        names = [n for n in tensors if not (origin.is_generated(n) or origin.is_a_layers(n))]
    if not names:
        return ""
    shown = ", ".join(map(repr, names[:3])) + (" …" if len(names) > 3 else "")
    return (
        f"the exporter does not tell parameters from buffers: {shown} {'trains' if len(names) == 1 else 'train'}, "
        f"and --trainable all,-{names[0]} leaves {names[0]!r} out"
    )


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
