"""A loss in onnxscript; it reads a function's own source, so this is a file."""

from onnxscript import FLOAT, script
from onnxscript import opset17 as op


@script()
def squares(prediction: FLOAT["N", 2], target: FLOAT["N", 2]) -> FLOAT:  # noqa: F821
    difference = op.Sub(prediction, target)
    return op.ReduceMean(op.Mul(difference, difference), keepdims=0)
