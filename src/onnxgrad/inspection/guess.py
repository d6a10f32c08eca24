"""What the model is probably for, and the loss that fits; always with the reason."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir


@dataclass(frozen=True)
class Guess:
    task: str
    loss: str
    because: str


def guess(model: ir.Model) -> Guess:
    """From the last operator and the shape of the first float output."""
    output = next(
        (v for v in model.graph.outputs if v.dtype is None or v.dtype.is_floating_point()), None
    )
    if output is None:
        return Guess("unknown", "none", "no output is of a float type")
    last = _last_operator(output)
    shape = None if output.shape is None else list(output.shape)
    width = shape[-1] if shape and isinstance(shape[-1], int) else None
    name = f"output {output.name!r}"
    if "loss" in (output.name or "").lower() and shape in ([], [1]):
        return Guess("a loss is built in", "the model's own", f"{name} is a scalar called a loss")
    if last in ("Softmax", "LogSoftmax"):
        return Guess("classification", "cross entropy", f"{name} comes out of {last}")
    if last == "Sigmoid":
        return Guess(
            "binary or multi-label classification",
            "binary cross entropy",
            f"{name} comes out of Sigmoid",
        )
    if shape is not None and len(shape) == 4:
        return Guess(
            "an image in, an image out",
            "MSE, or cross entropy over axis 1",
            f"{name} has four dims",
        )
    if shape is not None and len(shape) == 3:
        return Guess(
            "a sequence, an answer at each step", "cross entropy", f"{name} has three dims"
        )
    if (
        width is not None
        and width > 1
        and last in ("Gemm", "MatMul", "Add", "Flatten", "Squeeze", "Reshape")
    ):
        return Guess(
            "classification", "cross entropy", f"{name} has {width} columns of unbounded numbers"
        )
    if width == 1:
        return Guess("regression", "MSE", f"{name} has one column")
    return Guess("unknown", "MSE", f"nothing in {name} tells")


def _last_operator(value: ir.Value) -> str:
    """The operator that makes a value, seen through operators that only move it."""
    for _ in range(8):
        node = value.producer()
        if node is None:
            return ""
        if (
            node.op_type not in ("Identity", "Cast", "Squeeze", "Flatten", "Reshape")
            or not node.inputs
        ):
            return node.op_type
        value = node.inputs[0]
    return ""
