"""GroupNorm that exporters write as an InstanceNormalization of reshaped groups, a product and a sum; and the
Relu behind any normalisation over groups."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxgrad.graph.patterns.matching import Sight


def see_group_norm(sight: Sight, node: ir.Node) -> str | None:
    """As [N, groups, rest] to InstanceNormalization and back; then Mul and Add with a number per channel, if any."""
    if node.domain or node.op_type not in ("InstanceNormalization", "GroupNormalization"):
        return None
    return _in_parts(sight, node) or _with_relu(sight, node)


def _in_parts(sight: Sight, node: ir.Node) -> str | None:
    if node.op_type != "InstanceNormalization":
        return None
    inner, scale, shift = node.inputs
    reshape = sight.maker(inner, "Reshape")
    back = sight.reader(node.outputs[0])
    if reshape is None or back is None or back.op_type != "Reshape" or not sight.is_float(inner):
        return None
    x = reshape.inputs[0]
    groups = _groups(sight.dims(x), sight.dims(inner))
    if groups is None or sight.dims(back.outputs[0]) != sight.dims(x):
        return None
    end, own = back.outputs[0], _affine(sight, back.outputs[0])
    if own is not None:
        if not _all(sight, scale, 1.0) or not _all(sight, shift, 0.0):
            return None
        end, scale, shift = own
    return _written(sight, node, end, (x, scale, shift), groups)


def _with_relu(sight: Sight, node: ir.Node) -> str | None:
    """One operator that is followed by a Relu; alone it stays what it is."""
    channels = sight.dims(node.inputs[1])
    groups = sight.attribute(node, "num_groups", None)
    if node.op_type == "InstanceNormalization":
        groups = channels[0] if channels is not None else None
    if not isinstance(groups, int) or groups < 1 or not sight.is_float(node.outputs[0]):
        return None
    if _relu(sight, node.outputs[0]) is None:
        return None
    return _written(sight, node, node.outputs[0], node.inputs, groups)


def _written(sight: Sight, node: ir.Node, end: ir.Value, inputs, groups: int) -> str:
    settings = {"epsilon": float(sight.attribute(node, "epsilon", 1e-5)), "num_groups": groups}
    relu = _relu(sight, end)
    if relu is not None:
        end, settings["activation"] = relu, "relu"
    sight.replace(end, sight.op.GroupNormalizationTraining(*inputs, **settings))
    return "GroupNormalizationTraining"


def _relu(sight: Sight, value: ir.Value) -> ir.Value | None:
    """The result of a Relu that alone reads a value."""
    reader = sight.reader(value)
    alone = reader is not None and reader.op_type == "Relu" and not reader.domain
    return reader.outputs[0] if alone else None


def _groups(whole, inner) -> int | None:
    """How many groups [N, C, …] has as [N, groups, rest]."""
    if whole is None or inner is None or len(whole) < 2 or len(inner) != 3 or whole[0] != inner[0]:
        return None
    channels, groups = whole[1], inner[1]
    both = isinstance(channels, int) and isinstance(groups, int) and groups > 0
    return groups if both and channels % groups == 0 else None


def _affine(sight: Sight, value: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value] | None:
    """value·scale + shift with a number per channel of each: the sum, scale and shift."""
    shape, product = sight.dims(value), sight.reader(value)
    scale = _other(sight, product, "Mul", value, shape)
    total = None if scale is None else sight.reader(product.outputs[0])
    shift = None if total is None else _other(sight, total, "Add", product.outputs[0], shape)
    if shift is None or sight.dims(shift) != sight.dims(scale):
        return None
    return total.outputs[0], scale, shift


def _other(
    sight: Sight, node: ir.Node | None, op_type: str, value: ir.Value, shape
) -> ir.Value | None:
    """The other input of a sum or product, if it holds one number per channel."""
    if node is None or node.op_type != op_type or node.domain:
        return None
    other = node.inputs[1] if node.inputs[0] is value else node.inputs[0]
    own = sight.dims(other)
    if own is None or len(own) > len(shape) or any(not isinstance(d, int) for d in own):
        return None
    spread = (1,) * (len(shape) - len(own)) + tuple(own)
    alone = spread[1] == shape[1] and math.prod(spread) == shape[1]
    return other if alone and other.dtype == value.dtype else None


def _all(sight: Sight, value: ir.Value, number: float) -> bool:
    array = sight.array(value)
    return array is not None and bool(np.all(array == number))
