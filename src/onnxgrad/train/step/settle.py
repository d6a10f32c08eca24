"""What only the first batch tells of a loss: the axis of classes, probabilities, shapes that a file misstates."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace

import numpy as np
import onnx_ir as ir

from onnxgrad.errors import DataError
from onnxgrad.graph import infer as shapes
from onnxgrad.graph.ranges import Ranges, holds_probabilities
from onnxgrad.model.ending import Ending, ending, last_operator, unscaled
from onnxgrad.model.guess import PRODUCTS
from onnxgrad.notes import Note
from onnxgrad.train.losses import (
    BinaryCrossEntropyOfProbabilities,
    CrossEntropy,
    Loss,
    NegativeLogLikelihood,
    Target,
)
from onnxgrad.train.row_losses import RowWeighted, SoftCrossEntropy
from onnxgrad.train.step.setup import TrainingPlan

Outputs = Callable[[], Mapping[str, np.ndarray]]


def settle(
    plan: TrainingPlan, arrays: Mapping[str, np.ndarray], outputs: Outputs
) -> tuple[dict[str, Loss], list[Note]]:
    """Return the losses that the first batch asks for, all of them, and why; no losses where they stay.

    `outputs` runs the model on the batch; it is asked only where neither shapes nor operators tell.
    """
    found, notes, other = dict(plan.objective.losses), [], False
    values, outputs = plan.loss_values(), functools.cache(outputs)
    for name, loss in plan.objective.losses.items():
        wanted = plan.objective.targets.get(name)
        target = arrays.get(wanted.name) if wanted is not None else None
        if target is None:
            continue
        inner = loss.loss if isinstance(loss, RowWeighted) else loss
        _expect_probabilities(inner, values[name], outputs)
        if not isinstance(inner, CrossEntropy):
            note = _trust_the_run(plan, values[name], np.shape(target), arrays, outputs)
            doubt = _doubt_logits(wanted, values[name], outputs)
            notes += [n for n in (note, doubt) if n is not None]
            other = other or note is not None
            continue
        for change in (_follow_targets, _see_probabilities):
            changed, note = change(inner, values[name], np.asarray(target), outputs)
            notes += [note] if note is not None else []
            if changed != inner:
                inner, other = changed, True
                found[name] = replace(loss, loss=inner) if isinstance(loss, RowWeighted) else inner
    return found if other else {}, notes


def _trust_the_run(
    plan: TrainingPlan,
    output: ir.Value,
    shape: tuple,
    arrays: Mapping[str, np.ndarray],
    outputs: Outputs,
) -> Note | None:
    """Forget sizes that an output is declared with where neither the run nor the target keeps them.

    onnxruntime only warns of them: an exporter may call [4] a [batch]. Nor does it mind axes that are not
    declared: a Squeeze that was traced with one row removed the rows as well.
    """
    dims = shapes.dims(output)
    if dims is None:
        return None
    wrong = _wrong_sizes(dims, shape, _sizes(plan, arrays))
    if not wrong or np.shape(outputs()[output.name]) != shape:
        return None
    known = [None if i in wrong else d for i, d in enumerate(dims)]
    output.shape = ir.Shape(known) if len(dims) == len(shape) else None
    shown = ", ".join(map(str, dims))
    return Note(
        "declared shape",
        output.name,
        f"output {output.name!r} is declared as [{shown}], and the run gives {list(shape)}: the run counts",
    )


def _wrong_sizes(dims: tuple, shape: tuple, bound: Mapping[str, int]) -> list[int]:
    """The axes whose names mean other sizes than those of `shape`; all where it has another number of them."""
    if len(dims) != len(shape):
        ones = shapes.without_or_with_ones(shape, dims)
        return [] if ones is not None else list(range(max(len(dims), 1)))
    return [
        i for i, d in enumerate(dims) if isinstance(d, str) and bound.get(d, shape[i]) != shape[i]
    ]


def _sizes(plan: TrainingPlan, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return the sizes that the inputs of a batch give to names."""
    return {
        d: size
        for value in plan.base.graph.inputs
        if value.name in arrays
        for d, size in zip(shapes.dims(value) or (), np.shape(arrays[value.name]), strict=False)
        if isinstance(d, str)
    }


def _follow_targets(
    loss: CrossEntropy, output: ir.Value, target: np.ndarray, outputs: Outputs
) -> tuple[CrossEntropy, Note | None]:
    """[N, C, T] with labels [N, T] has its classes in axis 1, [N, T, C] in axis 2."""
    dims = shapes.dims(output)
    if loss.axis is not None or dims is None or len(dims) < 3:
        return loss, None
    ones = [
        a
        for a in dict.fromkeys((1, len(dims) - 1))
        if target.ndim == len(dims) and target.shape[a] == 1
    ]
    target = target.squeeze(ones[0]) if len(ones) == 1 else target
    if target.ndim != len(dims) - 1:
        return loss, None
    usual = loss.class_axis(len(dims))
    fitting = _fitting(dims, target.shape, usual)
    if len(fitting) > 1 and not all(isinstance(d, int) for d in dims[1:]):
        dims = outputs()[output.name].shape
        fitting = _fitting(dims, target.shape, usual)
    if len(fitting) > 1:
        shown = ", ".join(map(str, dims))
        raise DataError(
            f"the classes of output {output.name!r} of shape [{shown}] may lie in axis {fitting[0]} or "
            f"{fitting[1]}: labels of shape {list(target.shape)} fit both. Say which with "
            f"CrossEntropy(axis={fitting[0]}), on the command line --axis {fitting[0]}"
        )
    if not fitting or fitting[0] == usual:
        return loss, None
    text = (
        f"the classes of output {output.name!r} are taken from axis {fitting[0]}, "
        f"because the labels have shape {list(target.shape)}"
    )
    change = f"CrossEntropy(axis={usual}) or --axis {usual} takes axis {usual}"
    return replace(loss, axis=fitting[0]), Note("class axis", output.name, text, change)


def _fitting(dims: tuple, shape: tuple[int, ...], usual: int) -> list[int]:
    """The axes, of the second and the last, without which an output has the shape of the labels.

    The number of classes is written in a model: where the usual axis has one and the other is open, it is that
    (256 letters, in a text of 256).
    """
    last = len(dims) - 1
    fits = [a for a in dict.fromkeys((1, last)) if _alike((*dims[:a], *dims[a + 1 :]), shape)]
    written = [a for a in fits if isinstance(dims[a], int)]
    return written if written == [usual] else fits


def _alike(dims: tuple, shape: tuple[int, ...]) -> bool:
    return all(d == s for d, s in zip(dims, shape, strict=True) if isinstance(d, int))


def _see_probabilities(
    loss: CrossEntropy, output: ir.Value, target: np.ndarray, outputs: Outputs
) -> tuple[CrossEntropy, Note | None]:
    """A softmax that no operator shows: the numbers lie between 0 and 1, and add up to 1.

    What comes straight out of a product is not measured: it has no bounds. A loss of log-probabilities does
    not mean probabilities, either.
    """
    end = ending(output, loss.activation())
    if getattr(loss, "probabilities", False) or end is not None:
        return loss, None if end is None else _over_another_axis(loss, output, end)
    scaled = unscaled(output)
    if scaled is not output and loss.activation() and ending(scaled, ("LogSoftmax",)) is not None:
        text = f"output {output.name!r} is log-probabilities times a number, and is taken as logits"
        return loss, Note("logits", output.name, text)
    low, high = Ranges().of(output)
    bounded = low >= 0 and high < math.inf
    of_logarithms = isinstance(loss, NegativeLogLikelihood)
    if of_logarithms and (holds_probabilities(output) or _ends_in_log_softmax(loss, output)):
        return loss, None  # seen in the graph already
    if last_operator(output) in PRODUCTS and not bounded and not of_logarithms:
        return loss, None
    scores = outputs()[output.name]
    axis = loss.class_axis(scores.ndim)
    sums = scores.sum(axis=axis, dtype=np.float64)
    total = float(sums.mean()) if sums.size else 0.0
    enough = scores.shape[axis] >= 2 and (bounded or sums.size >= 2) and total > 0
    if not enough or scores.min() < -1e-6 or not np.allclose(sums, total, rtol=1e-3, atol=0):
        if of_logarithms:
            _expect_logarithms(output, scores, axis)
        return loss, _no_shares(loss, output, high) if bounded and enough else None
    total = 1.0 if abs(total - 1) < 1e-3 else float(f"{total:.4g}")
    text = (
        f"output {output.name!r} holds probabilities, which add up to {total:g} on the first batch: "
        f"{type(loss).__name__} uses their logarithms"
    )
    note = Note("probabilities", output.name, text)
    if isinstance(loss, (SoftCrossEntropy, NegativeLogLikelihood)):
        return replace(loss, probabilities=True, total=total), note
    settings = {f.name: getattr(loss, f.name) for f in fields(CrossEntropy)}
    return NegativeLogLikelihood(**settings, probabilities=True, total=total), note


def _over_another_axis(loss: CrossEntropy, output: ir.Value, end: Ending) -> Note | None:
    """Say so where the last Softmax is not one over the classes: the loss has one of its own."""
    dims, kind = shapes.dims(output), end.node.op_type
    if dims is None or any(node.op_type != "Identity" for node in end.moves):
        return None
    axis = end.node.attributes["axis"].value if "axis" in end.node.attributes else -1
    axis, classes = axis % len(dims), loss.class_axis(len(dims))
    if axis == classes:
        return None
    text = (
        f"output {output.name!r} ends in {kind} over axis {axis}, and its classes are in axis {classes}: "
        f"{type(loss).__name__} takes it as logits"
    )
    return Note("logits", output.name, text)


def _no_shares(loss: CrossEntropy, output: ir.Value, high: float) -> Note:
    """Sigmoids, say, one for each class."""
    text = (
        f"output {output.name!r} lies between 0 and {high:g} and does not add up to {high:g} over the classes: "
        f"{type(loss).__name__} takes it as logits"
    )
    return Note("logits", output.name, text, "--loss bce fits answers that may be true together")


def _ends_in_log_softmax(loss: CrossEntropy, output: ir.Value) -> bool:
    """Whether a LogSoftmax along the axis of the classes is the last that computes."""
    end, dims = ending(output, ("LogSoftmax",)), shapes.dims(output)
    if end is None or end.moves or not dims:
        return False
    axis = end.node.attributes["axis"].value if "axis" in end.node.attributes else -1
    return axis % len(dims) == loss.class_axis(len(dims))


def _expect_logarithms(output: ir.Value, scores: np.ndarray, axis: int) -> None:
    """Refuse nll where the numbers of the first batch are no log-probabilities: it would train something else.

    PyTorch's own would go on for ever, to minus infinity.
    """
    with np.errstate(over="ignore"):
        sums = np.exp(scores.astype(np.float64)).sum(axis=axis).ravel()
    wrong = sums[~(np.abs(sums - 1) <= 1e-2)]
    if wrong.size:
        raise DataError(
            f"output {output.name!r} holds no log-probabilities: e to them adds up to {wrong[0]:.4g} over axis "
            f"{axis} on the first batch, expected 1 for the loss nll; use cross_entropy for logits"
        )


def _expect_probabilities(loss: Loss, output: ir.Value, outputs: Outputs) -> None:
    """Refuse a loss of probabilities where the numbers of the first batch cannot be any."""
    of_classes = isinstance(loss, NegativeLogLikelihood) and loss.probabilities
    if not of_classes and not isinstance(loss, BinaryCrossEntropyOfProbabilities):
        return
    if holds_probabilities(output):
        return
    scores = outputs()[output.name]
    wrong = scores[(scores < -1e-3) | (scores > 1 + 1e-3)]
    if wrong.size:
        other = "nll for their logarithms, cross_entropy" if of_classes else "bce"
        raise DataError(
            f"output {output.name!r} holds {wrong[0]:.4g} on the first batch, expected probabilities from 0 to 1 for "
            f"the loss {'nll' if of_classes else 'bce'}_probabilities; use {other} for logits"
        )


def _doubt_logits(wanted: Target, output: ir.Value, outputs: Outputs) -> Note | None:
    """Say so where what is taken as logits could be something else: nothing shows where the numbers come from."""
    if wanted.scores != "logits" or last_operator(output) in PRODUCTS:
        return None
    if ending(output, ("LogSoftmax",)) is not None:
        return Note(
            "logits",
            output.name,
            f"output {output.name!r} is log-probabilities, and is taken as logits",
        )
    inner = unscaled(output)
    if inner is not output and holds_probabilities(inner):
        high = Ranges().of(output)[1]
        raise DataError(
            f"output {output.name!r} lies between 0 and {high:g}: probabilities times a number, which the loss bce "
            "takes neither as logits nor as probabilities; use mse for targets of that size, or take the factor "
            "out of the model"
        )
    if Ranges().of(output)[0] >= 0:
        text = (
            f"output {output.name!r} is never negative, and is taken as logits: no answer can be no"
        )
        return Note("logits", output.name, text)
    scores = outputs()[output.name]
    if scores.size < 8 or scores.min() < 0 or scores.max() > 1:
        return None
    text = f"output {output.name!r} lies between 0 and 1 on the first batch, and is taken as logits"
    return Note("logits", output.name, text, "--loss bce_probabilities takes it as probabilities")
