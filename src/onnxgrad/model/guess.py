"""What a model is probably for, and the loss that fits: one guess for `inspect` and `train`, with its reason."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxgrad.graph.infer import without_or_with_ones
from onnxgrad.graph.ranges import holds_probabilities
from onnxgrad.model.ending import ending, last_operator

# What each loss that is guessed is for.
TASKS = {
    **dict.fromkeys(("cross_entropy", "nll", "nll_probabilities"), "classification"),
    **dict.fromkeys(("bce", "bce_probabilities"), "binary or multi-label classification"),
    "mse": "regression",
}
# Numbers without bounds come out of them.
PRODUCTS = (
    "Gemm",
    "MatMul",
    "Add",
    "Conv",
    "ConvTranspose",
    "FusedMatMul",
    "FusedGemm",
    "FusedConv",
)
LOOKED_AT = 1 << 16  # targets


@dataclass(frozen=True)
class Guess:
    """`loss` is a name that `--loss` takes; empty where the model has its own, or nothing suggests one."""

    task: str
    loss: str
    because: str


def guess(model: ir.Model, targets: np.ndarray | None = None, of: str = "") -> Guess:
    """Judge by the output `of`, by default the first float, and by the targets where there are any: they decide.

    >>> import onnx
    >>> model = ir.from_proto(onnx.parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     g (float[N, 4] x) => (float[N, 3] y) <float[4, 3] w = {1,2,3,4,5,6,7,8,9,1,2,3}>
    ...     { y = MatMul(x, w) }'''))
    >>> guess(model).loss
    'cross_entropy'
    >>> guess(model, np.array([0, 2, 1])).because
    "the targets are integers, and output 'y' has one more axis than they have"
    >>> guess(model, np.zeros((3, 3))).loss
    'bce'
    """
    output = next((v for v in model.graph.outputs if (v.name == of if of else _is_float(v))), None)
    if output is None:
        return Guess("unknown", "", "no output is of a float type")
    if targets is None:
        return _of_output(output)
    return _of_targets(output, np.asarray(targets))


def _is_float(value: ir.Value) -> bool:
    return value.dtype is None or value.dtype.is_floating_point()


def _of_targets(output: ir.Value, targets: np.ndarray) -> Guess:
    name, shape = f"output {output.name!r}", _shape(output)
    rank = None if shape is None else len(shape)
    targets = _as_output(targets, shape)
    over = rank == targets.ndim + 1
    column = over and shape[-1] == 1
    if not column and (rank is None or over) and _whole(targets):
        because = f"the targets are integers, and {name} has one more axis than they have"
        return _fitting(output, "cross_entropy", because)
    if not column and rank not in (None, targets.ndim):
        because = (
            f"the targets have rank {targets.ndim} and type {targets.dtype}, "
            f"and {name} has rank {rank}"
        )
        return Guess("unknown", "", because)
    like = f"and {name} has one column" if column else f"in the shape of {name}"
    if np.isin(targets[:LOOKED_AT], (0, 1)).all():
        if _is_one_of_several(output, targets[:LOOKED_AT]):
            return _fitting(output, "cross_entropy", f"the targets are one-hot, {like}")
        return _fitting(output, "bce", f"the targets are all 0 or 1, {like}")
    return _guessed("mse", f"the targets are numbers, {like}")


def _is_one_of_several(output: ir.Value, targets: np.ndarray) -> bool:
    """Whether zeros and ones name one class a row, for an output that is no row of independent answers."""
    if targets.ndim != 2 or targets.shape[1] < 2 or not (targets.sum(axis=1) == 1).all():
        return False
    end = ending(output)
    return not holds_probabilities(output) if end is None else end.node.op_type != "Sigmoid"


def _as_output(targets: np.ndarray, shape: list | None) -> np.ndarray:
    """Targets without axes of length 1 that the output does not have: [N, 1] for [N], and for [N, classes]."""
    dims = None if shape is None else tuple(d if isinstance(d, int) else None for d in shape)
    if dims is None or targets.ndim == len(dims) - 1 == 1:  # labels, or a column
        return targets
    alike = without_or_with_ones(targets.shape, dims)
    if alike is None and targets.ndim == len(dims) and 1 in targets.shape[1:]:
        # labels have no axis of classes
        alike = (targets.shape[0], *(size for size in targets.shape[1:] if size != 1))
    return targets if alike is None else targets.reshape(alike)


def _of_output(output: ir.Value) -> Guess:
    """The activation at the end tells most, then the rank, then the last dim."""
    name, shape = f"output {output.name!r}", _shape(output)
    if "loss" in (output.name or "").lower() and shape in ([], [1]):
        return Guess("a loss is built in", "", f"{name} is a scalar called a loss")
    end = ending(output)
    if end is not None:
        loss = "bce" if end.node.op_type == "Sigmoid" else "cross_entropy"
        return _fitting(output, loss, f"{name} comes out of {end.node.op_type}")
    if holds_probabilities(output):
        # the number of classes is written in a model: an open size is none
        wide = len(shape or ()) > 1 and isinstance(shape[-1], int) and shape[-1] > 1
        alone = f"{name} lies between 0 and 1 whatever the weights are"
        return _guessed("nll_probabilities" if wide else "bce_probabilities", alone)
    if shape is not None and len(shape) == 4:
        because = f"{name} has four dims; with integers as targets, cross_entropy over axis 1"
        return Guess("an image in, an image out", "mse", because)
    if shape is not None and len(shape) == 3:
        because = f"{name} has three dims"
        return Guess("a sequence, an answer at each step", "cross_entropy", because)
    width = shape[-1] if shape and isinstance(shape[-1], int) else None
    if width is not None and width > 1 and last_operator(output) in PRODUCTS:
        return _guessed("cross_entropy", f"{name} has {width} columns of unbounded numbers")
    if width == 1:
        return _guessed("mse", f"{name} has one column")
    return Guess("unknown", "mse", f"nothing in {name} tells")


def _fitting(output: ir.Value, loss: str, because: str) -> Guess:
    """The form of `loss` that takes what the output holds: logits, probabilities or their logarithms."""
    end, name = ending(output), f"output {output.name!r}"
    kind = "" if end is None else end.node.op_type
    averaged = end is not None and any(node.op_type == "ReduceMean" for node in end.moves)
    if loss == "cross_entropy" and kind == "LogSoftmax" and not averaged:  # a mean adds up to less
        return _guessed("nll", f"{because}; {name} holds log-probabilities (LogSoftmax)")
    bounded = kind != "LogSoftmax" and (
        end.mixed if end is not None else holds_probabilities(output)
    )
    if not bounded or (loss == "cross_entropy" and kind == "Sigmoid"):
        return _guessed(loss, because)
    form = "nll_probabilities" if loss == "cross_entropy" else "bce_probabilities"
    made = f"{kind}, then {end.moves[-1].op_type}" if kind else "nothing else comes out of it"
    return _guessed(form, f"{because}; {name} holds probabilities ({made})")


def _guessed(loss: str, because: str) -> Guess:
    return Guess(TASKS[loss], loss, because)


def _shape(output: ir.Value) -> list | None:
    return None if output.shape is None else list(output.shape)


def _whole(targets: np.ndarray) -> bool:
    """Labels, in whatever type they came."""
    if targets.dtype.kind == "f":
        return bool((targets == np.floor(targets)).all())
    return targets.dtype.kind in "iu"
