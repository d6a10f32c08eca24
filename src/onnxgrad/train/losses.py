"""Losses, written into the graph by the op builder; autodiff gives their gradients.

A loss takes an output of the model and a target, a new input of the graph. Its `write` returns a scalar.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from onnxgrad.errors import ConfigError
from onnxgrad.graph import Builder

_REDUCTIONS = ("mean", "sum")


@dataclass(frozen=True)
class Target:
    """What a loss expects as its target: an input that the training graph gets."""

    name: str
    dtype: np.dtype
    dims: tuple[int | str | None, ...] | None
    classes: int | None = None  # for labels: how many there are, where the model tells it
    axis: int | None = None  # for labels: the axis of the output that holds the classes
    ignore: int | None = None
    of: str = ""  # the output that it is compared with
    kind: str = ""  # "labels", "yes or no", "numbers"; "" for a loss of the caller's own
    scores: str = ""  # for yes or no: whether the output holds "logits" or "probabilities"


@dataclass(frozen=True)
class Loss:
    """Base of the losses; `activation` says which final operator a loss contains already."""

    target_kind: ClassVar[str] = ""
    scores: ClassVar[str] = ""

    def target(self, op: Builder, output: ir.Value, name: str) -> Target:
        """Return what this loss expects as target for `output`; by default the same shape."""
        kind, scores = self.target_kind, self.scores
        dims = op.dims(output)
        return Target(name, output.dtype.numpy(), dims, of=output.name, kind=kind, scores=scores)

    def extras(self, op: Builder, output: ir.Value, name: str) -> tuple[Target, ...]:
        """Return what else a batch gives this loss, such as a weight for each row; named after the target."""
        return ()

    def write(self, op: Builder, output: ir.Value, target: ir.Value, *extras: ir.Value) -> ir.Value:
        """Write the loss and return it, a scalar: the mean or sum of what `each` writes."""
        return _reduce(op, self.each(op, output, target), self.reduction)

    def each(self, op: Builder, output: ir.Value, target: ir.Value) -> ir.Value:
        """Write the loss of every single answer."""
        raise NotImplementedError

    def activation(self) -> tuple[str, ...]:
        """Return the operators at the end of a model that this loss contains already."""
        return ()


def _check_reduction(loss: Any) -> None:
    if loss.reduction not in _REDUCTIONS:
        raise ValueError(
            f"{type(loss).__name__}: reduction is {loss.reduction!r}, expected mean or sum"
        )


def _reduce(op: Builder, value: ir.Value, reduction: str) -> ir.Value:
    reduce = op.ReduceMean if reduction == "mean" else op.ReduceSum
    return reduce(value, keepdims=0)


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Softmax cross entropy of logits and integer labels, as torch.nn.CrossEntropyLoss.

    `axis` holds the classes. Without it a Trainer follows the labels of the first batch, which have the
    output's shape without that axis: [N, T] for [N, C, T] and for [N, T, C]. Until then it is the last
    one of outputs of rank 2 and 3, and axis 1 of larger ones ([N, C, H, W]).
    """

    weight: Any = None
    ignore_index: int | None = None
    label_smoothing: float = 0.0
    reduction: str = "mean"
    axis: int | None = None

    def __post_init__(self) -> None:
        _check_reduction(self)
        if not 0 <= self.label_smoothing <= 1:
            value = self.label_smoothing
            raise ValueError(f"CrossEntropy: label_smoothing is {value!r}, expected 0 to 1")
        if self.weight is not None:
            object.__setattr__(self, "weight", tuple(float(w) for w in self.weight))

    def activation(self) -> tuple[str, ...]:
        return ("Softmax", "LogSoftmax")

    def class_axis(self, rank: int) -> int:
        """Return the axis of the classes, counted from the front."""
        if rank < 2:
            raise ValueError(f"CrossEntropy: the output has rank {rank}, expected at least 2")
        axis = self.axis if self.axis is not None else (-1 if rank <= 3 else 1)
        if not -rank <= axis < rank or axis % rank == 0:
            raise ValueError(f"CrossEntropy: axis is {axis}, expected 1 to {rank - 1}")
        return axis % rank

    def target(self, op: Builder, output: ir.Value, name: str) -> Target:
        dims = op.dims(output)
        axis = self.class_axis(op.rank(output))
        classes = dims[axis] if isinstance(dims[axis], int) else None
        if self.weight is not None and classes not in (None, len(self.weight)):
            raise ValueError(
                f"CrossEntropy: weight has {len(self.weight)} numbers, "
                f"expected {classes}, one per class of {output.name!r}"
            )
        rest = (*dims[:axis], *dims[axis + 1 :])
        return Target(
            name, np.dtype(np.int64), rest, classes, axis, self.ignore_index, output.name, "labels"
        )

    def each(self, op: Builder, output: ir.Value, target: ir.Value) -> ir.Value:
        if self.label_smoothing:
            raise ValueError("CrossEntropy: weights of rows and label_smoothing do not go together")
        axis, weight = self.class_axis(op.rank(output)), None
        if axis != 1:
            order = [0, axis, *(i for i in range(1, op.rank(output)) if i != axis)]
            output = op.Transpose(output, perm=order)
        if self.weight is not None:
            weight = op.constant(np.array(self.weight), op.dtype(output))
        ignored = self.ignore_index
        return op.SoftmaxCrossEntropyLoss(
            output, target, weight, reduction="none", ignore_index=ignored
        )

    def write(self, op: Builder, output: ir.Value, target: ir.Value) -> ir.Value:
        rank = op.rank(output)
        axis = self.class_axis(rank)
        if rank > 2 and axis == rank - 1:  # rows of classes: neither transposed nor copied
            output = op.Reshape(output, op.Concat([-1], op.dim(output, axis), axis=0))
            target = op.Reshape(target, [-1])
        elif axis != 1:
            order = [0, axis, *(i for i in range(1, rank) if i != axis)]
            output = op.Transpose(output, perm=order)
        weight = None
        if self.weight is not None:
            weight = op.constant(np.array(self.weight), op.dtype(output))
        settings = {"reduction": self.reduction, "ignore_index": self.ignore_index}
        if self.label_smoothing == 0:
            return op.SoftmaxCrossEntropyLoss(output, target, weight, **settings)
        return self._smoothed(op, output, target, weight, settings)

    def _smoothed(self, op, output, target, weight, settings) -> ir.Value:
        """(1 - ε)·loss + ε/C·Σ_c -w_c·log p_c, the second part averaged like the first."""
        log_p = op.LogSoftmax(output, axis=1)
        hard = op.NegativeLogLikelihoodLoss(log_p, target, weight, **settings)
        if weight is not None:
            shape = [-1] + [1] * (op.rank(output) - 2)
            log_p = op.Mul(log_p, op.Reshape(weight, shape))
        each = op.Neg(op.ReduceSum(log_p, [1], keepdims=0))
        count = None
        if self.ignore_index is not None:
            used = op.Not(op.Equal(target, self.ignore_index))
            each = op.Where(used, each, 0.0)
            count = op.number(used, output)
        if weight is not None:
            labels = target if count is None else op.Where(used, target, 0)
            own = op.Gather(weight, labels)
            count = own if count is None else op.Mul(own, count)
        smooth = op.ReduceSum(each, keepdims=0)
        if self.reduction == "mean":
            total = op.number(op.Size(target), output)
            if count is not None:
                total = op.ReduceSum(count, keepdims=0)
            smooth = op.Div(smooth, total)
        classes = op.number(op.Squeeze(op.dim(output, 1), [0]), output)
        share = op.Div(op.constant(np.array(self.label_smoothing), op.dtype(output)), classes)
        return op.Add(op.Mul(hard, 1 - self.label_smoothing), op.Mul(smooth, share))


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """Sigmoid cross entropy of logits and targets in [0, 1], as torch.nn.BCEWithLogitsLoss.

    softplus(x) - x·y; with `pos_weight` p: (1 - y)·x + (1 + (p - 1)·y)·softplus(-x).
    """

    pos_weight: Any = None
    reduction: str = "mean"
    target_kind: ClassVar[str] = "yes or no"
    scores: ClassVar[str] = "logits"

    def __post_init__(self) -> None:
        _check_reduction(self)
        if self.pos_weight is not None:
            weights = np.atleast_1d(np.asarray(self.pos_weight, np.float64))
            object.__setattr__(self, "pos_weight", tuple(float(w) for w in weights))

    def activation(self) -> tuple[str, ...]:
        return ("Sigmoid",)

    def each(self, op: Builder, output: ir.Value, target: ir.Value) -> ir.Value:
        if self.pos_weight is None:
            each = op.Sub(op.Softplus(output), op.Mul(output, target))
        else:
            weight = op.constant(np.array(self.pos_weight), op.dtype(output))
            factor = op.Add(op.Mul(op.Sub(weight, 1.0), target), 1.0)
            rest = op.Mul(op.Sub(1.0, target), output)
            each = op.Add(rest, op.Mul(factor, op.Softplus(op.Neg(output))))
        return each


@dataclass(frozen=True)
class BinaryCrossEntropyOfProbabilities(Loss):
    """-(y·log p + (1 - y)·log(1 - p)) of probabilities p, as torch.nn.BCELoss.

    p is kept from 0 and 1 by the last digit of its type, where the logarithm would be infinite.
    """

    reduction: str = "mean"
    target_kind: ClassVar[str] = "yes or no"
    scores: ClassVar[str] = "probabilities"

    def __post_init__(self) -> None:
        _check_reduction(self)

    def each(self, op: Builder, output: ir.Value, target: ir.Value) -> ir.Value:
        p = inside_one(op, output)
        yes, no = op.Mul(target, op.Log(p)), op.Mul(op.Sub(1.0, target), op.Log(op.Sub(1.0, p)))
        return op.Neg(op.Add(yes, no))


def inside_one(op: Builder, p: ir.Value, total: float = 1.0) -> ir.Value:
    """Return probabilities that are neither 0 nor 1; `total` is what they add up to before."""
    small = float(np.finfo(op.dtype(p).numpy()).eps)
    if total != 1:
        p = op.Div(p, op.constant(np.array(total), op.dtype(p)))
    low = op.constant(np.array(small), op.dtype(p))
    high = op.constant(np.array(1 - small), op.dtype(p))
    return op.Min(op.Max(p, low), high)


@dataclass(frozen=True)
class NegativeLogLikelihood(CrossEntropy):
    """-log p of the label's class, for outputs that are log-probabilities, as torch.nn.NLLLoss.

    With `probabilities=True` the outputs are the probabilities themselves, which add up to `total` (100 of
    percentages). The settings are those of CrossEntropy: a softmax of log-probabilities is what they came
    from, so the numbers are the same.
    """

    probabilities: bool = False
    total: float = 1.0

    def activation(self) -> tuple[str, ...]:
        return ()

    def write(self, op: Builder, output: ir.Value, target: ir.Value) -> ir.Value:
        return super().write(op, self._log(op, output), target)

    def each(self, op: Builder, output: ir.Value, target: ir.Value) -> ir.Value:
        return super().each(op, self._log(op, output), target)

    def _log(self, op: Builder, output: ir.Value) -> ir.Value:
        return op.Log(inside_one(op, output, self.total)) if self.probabilities else output


@dataclass(frozen=True)
class MSE(Loss):
    """The square of the difference, as torch.nn.MSELoss."""

    reduction: str = "mean"
    target_kind: ClassVar[str] = "numbers"

    def __post_init__(self) -> None:
        _check_reduction(self)

    def each(self, op: Builder, output: ir.Value, target: ir.Value) -> ir.Value:
        difference = op.Sub(output, target)
        return op.Mul(difference, difference)


@dataclass(frozen=True)
class L1(Loss):
    """The size of the difference, as torch.nn.L1Loss."""

    reduction: str = "mean"
    target_kind: ClassVar[str] = "numbers"

    def __post_init__(self) -> None:
        _check_reduction(self)

    def each(self, op: Builder, output: ir.Value, target: ir.Value) -> ir.Value:
        return op.Abs(op.Sub(output, target))


@dataclass(frozen=True)
class Huber(Loss):
    """½d² where |d| <= delta, delta·(|d| - ½·delta) beyond it, as torch.nn.HuberLoss.

    With c = min(|d|, delta) both are c·(|d| - ½c).
    """

    delta: float = 1.0
    reduction: str = "mean"
    target_kind: ClassVar[str] = "numbers"

    def __post_init__(self) -> None:
        _check_reduction(self)
        if not self.delta > 0:
            raise ValueError(f"Huber: delta is {self.delta!r}, expected a number > 0")

    def each(self, op: Builder, output: ir.Value, target: ir.Value) -> ir.Value:
        size = op.Abs(op.Sub(output, target))
        near = op.Less(size, op.constant(np.array(self.delta), op.dtype(output)))
        square = op.Mul(op.Mul(size, size), 0.5)
        line = op.Mul(op.Sub(size, 0.5 * self.delta), self.delta)
        return op.Where(near, square, line)


@dataclass(frozen=True)
class Function(Loss):
    """A loss of your own: `write(op, output, target)` returns a scalar, written with the op builder.

    `dtype` and `dims` describe the target; by default it is like the output.

        >>> def log_cosh(op, output, target):
        ...     return op.ReduceMean(op.Log(op.Cosh(op.Sub(output, target))), keepdims=0)
        >>> loss = Function(log_cosh)
    """

    function: Callable[[Builder, ir.Value, ir.Value], ir.Value]
    dtype: Any = None
    dims: tuple | None = None

    def target(self, op: Builder, output: ir.Value, name: str) -> Target:
        dtype = output.dtype.numpy() if self.dtype is None else np.dtype(self.dtype)
        dims = op.dims(output) if self.dims is None else tuple(self.dims)
        return Target(name, dtype, dims, of=output.name)

    def write(self, op: Builder, output: ir.Value, target: ir.Value) -> ir.Value:
        value = self.function(op, output, target)
        if not isinstance(value, ir.Value):
            who = getattr(self.function, "__name__", "the loss function")
            raise ValueError(
                f"{who} returned a {type(value).__name__}, expected a value of the graph"
            )
        return value


NAMES: dict[str, Callable[[], Loss]] = {
    "cross_entropy": CrossEntropy, "ce": CrossEntropy,
    "binary_cross_entropy": BinaryCrossEntropy, "bce": BinaryCrossEntropy,
    "bce_probabilities": BinaryCrossEntropyOfProbabilities,
    "nll": NegativeLogLikelihood,
    "nll_probabilities": functools.partial(NegativeLogLikelihood, probabilities=True),
    "mse": MSE, "l1": L1, "mae": L1, "huber": Huber,
}  # fmt: skip
ALIASES = {"ce": "cross_entropy", "binary_cross_entropy": "bce", "mae": "l1"}


def with_axis(loss: Any, axis: int) -> Any:
    """Return the loss of a name with its classes in `axis`; 0 leaves it to the targets.

    >>> with_axis("ce", 1).axis, with_axis("ce", 0)
    (1, 'ce')
    """
    if not axis:
        return loss
    made = NAMES[loss]() if isinstance(loss, str) and loss in NAMES else loss
    if not isinstance(made, CrossEntropy):
        raise ConfigError(
            f"--axis is {axis}: the axis of the classes, which the loss {loss or 'of the model'!s} "
            "does not have; expected with cross_entropy, nll or nll_probabilities"
        )
    return replace(made, axis=axis)
