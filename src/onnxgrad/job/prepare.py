"""From a model file and a dataset to what is known before training: columns, target, loss; with reasons."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxgrad.data import read as files
from onnxgrad.data.batches import LABELLED, Batches, Goal, goal
from onnxgrad.data.matching import Matched, check_inputs, feed_inputs, find_target
from onnxgrad.data.table import Table
from onnxgrad.errors import ConfigError, DataError
from onnxgrad.files.paths import is_path
from onnxgrad.inspection.probe import first_load
from onnxgrad.inspection.reading import read as read_model
from onnxgrad.job.texts import split_names
from onnxgrad.model.guess import guess
from onnxgrad.train.losses import ALIASES

CLASSES = "onnxgrad.classes"  # metadata of a tuned model: the names of its classes, as a JSON list

METRICS = {
    "cross_entropy": "accuracy",
    "nll": "accuracy",
    "nll_probabilities": "accuracy",
    "bce": "accuracy",
    "bce_probabilities": "accuracy",
    "mse": "mae,r2",
    "l1": "mae,r2",
    "huber": "mae,r2",
}


@dataclass
class Prepared:
    """`loss` is None for a model that computes its own."""

    path: Any
    model: ir.Model
    table: Table
    matched: Matched
    loss: str | None
    notes: list[str]

    @property
    def output(self) -> ir.Value:
        return _float_output(self.model)

    def metrics(self, chosen: str) -> list[str]:
        """The names of the metrics: those chosen, or those that go with the loss."""
        text = chosen or METRICS.get(self.loss or "", "")
        return [name.strip() for name in text.split(",") if name.strip()]

    def goal(self, name: str) -> Goal | None:
        """How the target column becomes the trainer's target of that name."""
        if self.loss is None:
            return None
        sample = self.table.head(self.matched.target, 2)
        made = goal(self.loss, self.output, sample, name, self.matched.classes)
        self._check_classes(made)
        return made

    def _check_classes(self, made: Goal) -> None:
        shape = None if self.output.shape is None else list(self.output.shape)
        outputs = shape[1] if shape and len(shape) == 2 else None
        count = len(self.matched.classes)
        if made.labels and isinstance(outputs, int) and count > outputs:
            named = ", ".join(self.matched.classes[:8]) + (" …" if count > 8 else "")
            raise DataError(
                f"{self.table.source}: the target '{self.matched.target}' has {count} classes ({named}), and output "
                f"'{self.output.name}' of the model has {outputs}. A new last layer for them: --classes auto"
            )

    def batch_size(self, wanted: int) -> tuple[int, bool]:
        """The rows of a batch, and whether the model fixes them."""
        sizes = {
            v.shape[0]
            for v in self.model.graph.inputs
            if v.name in self.matched.inputs and v.shape is not None and len(v.shape) > 0
        }
        fixed = sizes.pop() if len(sizes) == 1 else None
        return (fixed, True) if isinstance(fixed, int) else (wanted, False)

    def all_rows(self, name: str, batch_size: int) -> Batches:
        """The whole table in order, `name` being the trainer's target."""
        size, fixed = self.batch_size(batch_size)
        return Batches(self.table, self.matched, self.goal(name), size, whole_only=fixed)


@dataclass
class Opened:
    """A model and a table, and what the table's target is for the model."""

    path: Any
    original: ir.Model
    model: ir.Model
    table: Table
    ignore: tuple[str, ...]
    aim: Matched
    loss: str | None

    def prepared(self, changed: Any = None) -> Prepared:
        """Give every input its columns; `changed` is the model that takes the place of the file's."""
        model = self.model if changed is None else read_model(changed)[1]
        matched = feed_inputs(model, self.table, self.aim, self.ignore)
        path = self.path if changed is None else changed
        return Prepared(path, model, self.table, matched, self.loss, matched.notes)

    def class_count(self, wanted: str) -> int:
        """The number that --classes means: a number, or as many as the targets have."""
        if wanted.isdecimal() and int(wanted) > 0:
            return int(wanted)
        if wanted != "auto":
            raise ConfigError(f"--classes is {wanted!r}, expected auto or a number of classes")
        if not self.aim.target:
            raise ConfigError("--classes auto needs a target: name it with --target")
        if self.aim.classes:
            return len(self.aim.classes)
        labels = self.table.words(self.aim.target)
        if labels.dtype.kind not in "iu" or labels.size == 0 or labels.min() < 0:
            raise ConfigError(
                f"--classes auto: the target '{self.aim.target}' holds no class numbers; "
                "expected words, or integers from 0 on"
            )
        return int(labels.max()) + 1

    @property
    def labelled(self) -> bool:
        """Whether the target is one column of classes."""
        return self.loss in LABELLED and self.table.columns[self.aim.target].shape == ()


def open_files(
    path: Any,
    data: str,
    target: str = "",
    ignore: tuple[str, ...] = (),
    loss: str = "",
    new_classes: bool = False,
    tried: bool = False,
) -> Opened:
    """Read both files, and find target and loss where they are not given.

    `new_classes`: the names of classes that an earlier run wrote into the model do not count.
    `tried`: the model was loaded by onnxruntime before.
    """
    original, model = read_model(path)
    loss = ALIASES.get(loss, loss)
    # A model in memory came from a file that was loaded before.
    with first_load(path) if is_path(path) and not tried else contextlib.nullcontext():
        check_inputs(model)
        table = files.read(data)
        aim = find_target(model, table, target, ignore)
        if not new_classes:
            _use_stored_classes(original, table, aim)
    if aim.target:
        return Opened(path, original, model, table, ignore, aim, loss or _guess(model, table, aim))
    own = _own_loss(model, table, loss, aim.notes)
    return Opened(path, original, model, table, ignore, aim, own)


def prepare(path: Any, data: str, target: str = "", ignore: str = "", loss: str = "") -> Prepared:
    """Read both files, give every input its columns, and find target and loss where they are not given."""
    return open_files(path, data, target, split_names(ignore), loss).prepared()


def stored_classes(model: ir.Model) -> list[str]:
    """The names of the classes that an earlier run wrote into the model; empty for other models."""
    try:
        return [str(name) for name in json.loads(model.metadata_props.get(CLASSES, "[]"))]
    except (ValueError, TypeError):
        return []


def _use_stored_classes(model: ir.Model, table: Table, matched: Matched) -> None:
    stored = stored_classes(model)
    if stored and matched.target and table.columns[matched.target].dtype.kind in "US":
        matched.classes = stored
        matched.notes[-1] = (
            f"target '{matched.target}' is text: numbered as in the model's own list of {len(stored)} classes"
        )


def _float_output(model: ir.Model) -> ir.Value:
    for value in model.graph.outputs:
        if value.dtype is not None and value.dtype.numpy().kind == "f":
            return value
    raise DataError("the model has no float output that a loss could judge")


def _own_loss(model: ir.Model, table: Table, loss: str, notes: list[str]) -> None:
    scalar = next(
        (v for v in model.graph.outputs if v.shape is not None and len(v.shape) == 0), None
    )
    if loss or scalar is None:
        raise DataError(
            f"{table.source} has no target: every column is an input of the model. Name the target with --target"
        )
    notes.append(f"loss: the model's own, output '{scalar.name}', because the data has no target")


def _guess(model: ir.Model, table: Table, matched: Matched) -> str:
    sample = table.head(matched.target)
    if sample.dtype.kind in "US":
        sample = np.arange(len(matched.classes))
    found = guess(model, sample)
    if not found.loss:
        raise ConfigError(f"{found.because}: give the loss with --loss")
    matched.notes.append(f"loss: {found.loss}, because {found.because}")
    if len(np.unique(sample)) == 1:
        matched.notes.append(f"every target is {sample.flat[0]}: there is nothing to tell apart")
    return found.loss
