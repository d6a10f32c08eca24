"""How older opsets spell a node that rules write in its newest form.

Each function takes (op, op_type, inputs, attributes, outputs) and writes the node so that it is
valid in `op.opset`. An operator that is not in OLDER is spelt the same in every opset from 16 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from onnxgrad.graph.shapes import ShapeUnknown

if TYPE_CHECKING:
    from onnxgrad.graph.builder import Builder

_HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def _reduce(op: Builder, op_type: str, inputs: list, attributes: dict, outputs: Any) -> Any:
    """Reduce*-18 takes axes as an input; before it they are an attribute (ReduceSum-13 led)."""
    axes = inputs[1] if len(inputs) > 1 else None
    if op.opset >= 18 or axes is None:
        return op.emit(op_type, inputs, attributes, outputs)
    known = op.ints(axes)
    if known is None:
        raise ShapeUnknown(f"{op_type} with computed axes needs opset 18, the model has {op.opset}")
    return op.emit(op_type, inputs[:1], {**attributes, "axes": known}, outputs)


def _split(op: Builder, op_type: str, inputs: list, attributes: dict, outputs: Any) -> Any:
    """Split-18 wants num_outputs when the parts are not given; before it there is no such thing."""
    attributes = dict(attributes)
    given = len(inputs) > 1 and inputs[1] is not None
    if op.opset >= 18 and not given:
        attributes.setdefault("num_outputs", outputs)
    else:
        attributes.pop("num_outputs", None)
    return op.emit(op_type, inputs, attributes, outputs)


def _pad(op: Builder, op_type: str, inputs: list, attributes: dict, outputs: Any) -> Any:
    """Pad-18 takes axes. They are spelt out as pads for every axis, in newer opsets, too.

    onnxruntime moves a Transpose through Pad as if there were no axes, and then fails to run
    (seen in 1.31.1, with dynamic pads).
    """
    axes = inputs[3] if len(inputs) > 3 else None
    if axes is None:
        return op.emit(op_type, inputs, attributes, outputs)
    rank, known = op.rank(inputs[0]), op.ints(axes)
    amounts = op.ints(inputs[1])
    # begin and end of each padded axis, among zeros for all the others
    slots = [a % rank for a in known] + [a % rank + rank for a in known]
    if amounts is not None:
        pads = [0] * (2 * rank)
        for slot, amount in zip(slots, amounts, strict=True):
            pads[slot] = amount
        pads = op.constant(pads)
    else:
        pads = op.ScatterElements(op.constant([0] * (2 * rank)), slots, inputs[1])
    return op.emit(op_type, [inputs[0], pads, inputs[2]], attributes, outputs)


def _scatter(op: Builder, op_type: str, inputs: list, attributes: dict, outputs: Any) -> Any:
    """onnxruntime adds in float and double only; sums in half precision would lose too much anyway."""
    data, indices, updates = inputs
    if attributes.get("reduction", "none") == "none" or data.dtype not in _HALF:
        return op.emit(op_type, inputs, attributes, outputs)
    wide = [op.Cast(v, to=ir.DataType.FLOAT) for v in (data, updates)]
    return op.Cast(op.emit(op_type, [wide[0], indices, wide[1]], attributes), to=data.dtype)


# fmt: off
OLDER = {
    **dict.fromkeys((
        "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
        "ReduceMin", "ReduceProd", "ReduceSumSquare",
    ), _reduce),
    "Split": _split,
    "Pad": _pad,
    "ScatterElements": _scatter,
}
# fmt: on
