"""Losses that a batch tells more than one target: a weight for each row, or a share of every class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxgrad.graph import Builder
from onnxgrad.train.losses import CrossEntropy, Loss, Target, inside_one


@dataclass(frozen=True)
class RowWeighted(Loss):
    """Σ w·l / Σ w over the rows, with w from the batch as `<target>_weight` and l the row's mean loss.

    `loss` is one of the losses by name, such as `CrossEntropy()` or `MSE()`.
    """

    loss: Loss

    def activation(self) -> tuple[str, ...]:
        return self.loss.activation()

    def class_axis(self, rank: int) -> int:
        return self.loss.class_axis(rank)

    def target(self, op: Builder, output: ir.Value, name: str) -> Target:
        return self.loss.target(op, output, name)

    def extras(self, op: Builder, output: ir.Value, name: str) -> tuple[Target, ...]:
        dims = op.dims(output)
        rows = dims[0] if dims else None
        return (Target(f"{name}_weight", np.dtype(output.dtype.numpy()), (rows,), kind="weights"),)

    def write(self, op: Builder, output: ir.Value, target: ir.Value, *extras: ir.Value) -> ir.Value:
        each, (weight,) = self.loss.each(op, output, target), extras
        if op.rank(each) != 1:
            each = op.ReduceMean(op.Reshape(each, [0, -1]), [1], keepdims=0)
        total = op.ReduceSum(weight, keepdims=0)
        return op.Div(op.ReduceSum(op.Mul(each, weight), keepdims=0), total)


@dataclass(frozen=True)
class SoftCrossEntropy(CrossEntropy):
    """-Σ_c t_c·log p_c of logits [N, C] and shares t [N, C] that add up to 1, as mixed pictures have them.

    As torch.nn.CrossEntropyLoss with class probabilities; `weight` w makes it -Σ_c w_c·t_c·log p_c. With
    `probabilities=True` the outputs are the p_c themselves, times `total`.
    """

    probabilities: bool = False
    total: float = 1.0

    def activation(self) -> tuple[str, ...]:
        return () if self.probabilities else super().activation()

    def target(self, op: Builder, output: ir.Value, name: str) -> Target:
        dims = op.dims(output)
        if len(dims) != 2:
            raise ValueError(f"SoftCrossEntropy: the output has rank {len(dims)}, expected 2")
        super().target(op, output, name)  # checks the weights
        kind = np.dtype(output.dtype.numpy())
        return Target(name, kind, dims, axis=1, of=output.name, kind="shares")

    def each(self, op: Builder, output: ir.Value, target: ir.Value) -> ir.Value:
        if self.label_smoothing:
            share = op.constant(np.array(self.label_smoothing), op.dtype(output))
            classes = op.number(op.Squeeze(op.dim(output, 1), [0]), output)
            target = op.Add(op.Mul(target, 1 - self.label_smoothing), op.Div(share, classes))
        known = self.probabilities
        log_p = (
            op.Log(inside_one(op, output, self.total)) if known else op.LogSoftmax(output, axis=1)
        )
        log_p = op.Mul(log_p, target)
        if self.weight is not None:
            log_p = op.Mul(log_p, op.constant(np.array(self.weight), op.dtype(output)))
        return op.Neg(op.ReduceSum(log_p, [1], keepdims=0))

    def write(self, op: Builder, output: ir.Value, target: ir.Value, *extras: ir.Value) -> ir.Value:
        reduce = op.ReduceMean if self.reduction == "mean" else op.ReduceSum
        return reduce(self.each(op, output, target), keepdims=0)
