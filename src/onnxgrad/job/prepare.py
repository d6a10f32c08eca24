"""From a model file and a dataset to what is known before training: columns, target, loss; with reasons."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxgrad.data import read as files
from onnxgrad.data.batches import Batches
from onnxgrad.data.forms import Forms
from onnxgrad.data.goals import LABELLED, Goal, RowWeights, goal
from onnxgrad.data.matching import Matched, check_inputs, feed_inputs, find_target
from onnxgrad.data.table import Table
from onnxgrad.data.texts import TextFeed, as_tags, is_ragged
from onnxgrad.errors import ConfigError, DataError, FileError
from onnxgrad.files.paths import is_path
from onnxgrad.files.text import parse_record, read_json
from onnxgrad.inspection.probe import first_load
from onnxgrad.inspection.reading import read as read_model
from onnxgrad.job.config import input_flags
from onnxgrad.job.inputs import check_flags, read_forms
from onnxgrad.job.texts import split_names
from onnxgrad.model.guess import guess
from onnxgrad.notes import Note
from onnxgrad.train.losses import ALIASES

CLASSES = "onnxgrad.classes"  # metadata of a tuned model: the names of its classes, as a JSON list

MANY_CLASSES = 100_000  # more than that are believed where the data have them

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


@dataclass(frozen=True)
class Request:
    """What a person says of target, columns, output and loss; empty where it is to be found."""

    target: str = ""
    ignore: tuple[str, ...] = ()
    loss: str = ""
    output: str = ""
    weights: str = ""  # the column of weights of rows
    inputs: Mapping[str, Any] = field(default_factory=dict)  # how pictures, sounds, texts are made

    @classmethod
    def of(cls, config: Any, more: tuple[str, ...] = ()) -> Request:
        """What settings say; `more` are further columns that are not inputs."""
        weights = config.sample_weights
        ignore = (*split_names(config.ignore), *more, *filter(None, [weights]))
        inputs = input_flags(config)
        return cls(config.target, ignore, config.loss, config.model_output, weights, inputs)

    def losses(self) -> dict[str, str]:
        """The losses by output; "" is the output that is judged where there is one loss."""
        if "=" not in self.loss:
            return {self.output: ALIASES.get(self.loss, self.loss)}
        pairs = (part.partition("=") for part in split_names(self.loss))
        return {o.strip(): ALIASES.get(loss.strip(), loss.strip()) for o, _, loss in pairs}


@dataclass
class Prepared:
    """`losses` are by output, and None for a model that computes its own."""

    path: Any
    model: ir.Model
    table: Table
    matched: Matched
    losses: dict[str, str] | None
    notes: list[Note]

    @property
    def loss(self) -> str | None:
        """The name of the first loss."""
        return None if self.losses is None else next(iter(self.losses.values()))

    @property
    def output(self) -> ir.Value:
        """The first output that is judged."""
        return self.judged(next(iter(self.losses)) if self.losses else "")

    @property
    def tagged(self) -> bool:
        """Whether a target has a label for every word or token, of which some have none."""
        named = self.losses is not None and set(self.losses.values()) & set(LABELLED)
        if not named or not self.matched.target:
            return False
        target, feeds = self.matched.target, self.matched.inputs.values()
        words = any(
            isinstance(f, TextFeed) and self.table.columns[f.columns[0]].shape for f in feeds
        )
        return is_ragged(self.table, target) or (words and bool(self.table.columns[target].shape))

    def judged(self, name: str) -> ir.Value:
        """An output by its name."""
        found = {v.name: v for v in self.model.graph.outputs}
        return found[name] if name in found else float_output(self.model)

    def metrics(self, chosen: str) -> list[str]:
        """The names of the metrics: those chosen, or those that go with the losses."""
        if chosen or self.losses is None:
            return list(split_names(chosen))
        if len(self.losses) == 1:
            return list(split_names(METRICS.get(self.loss, "")))
        return [
            f"{output}={metric}"
            for output, loss in self.losses.items()
            for metric in split_names(METRICS.get(loss, ""))
        ]

    def goals(
        self, names: tuple[str, ...], weights: str = "", mixed: bool = False
    ) -> list[Goal | RowWeights]:
        """How columns become what the trainer calls by these names: targets, then weights of rows.

        `mixed`: labels become shares of classes.
        """
        made: list[Goal | RowWeights] = []
        targets = zip((self.losses or {}).items(), self.matched.targets.values(), strict=False)
        for (output, loss), columns in targets:
            value = self.judged(output)
            sample = self.table.head(columns[0], 2) if len(columns) == 1 else np.zeros((2, 2))
            name = names[len(made)]
            one = goal(loss, value, sample, name, columns, self.matched.classes)
            self._check_classes(one, value)
            if mixed and one.labels:
                one = replace(one, shares=self._width(value))
            made.append(as_tags(one, self.table, self.matched.inputs))
        kind = np.dtype(self.output.dtype.numpy()) if made else np.dtype(np.float32)
        return [*made, *(RowWeights(name, (weights,), kind) for name in names[len(made) :])]

    def _width(self, output: ir.Value) -> int:
        shape = [] if output.shape is None else list(output.shape)
        if len(shape) != 2 or not isinstance(shape[1], int):
            raise ConfigError(
                f"--augment mixup needs an output [rows, classes], and '{output.name}' is {shape}"
            )
        return shape[1]

    def _check_classes(self, made: Goal, output: ir.Value) -> None:
        shape = None if output.shape is None else list(output.shape)
        outputs = shape[1] if shape and len(shape) == 2 else None
        count = len(self.matched.classes)
        if made.labels and isinstance(outputs, int) and count > outputs:
            named = ", ".join(self.matched.classes[:8]) + (" …" if count > 8 else "")
            raise DataError(
                f"{self.table.source}: the target '{self.matched.target}' has {count} classes ({named}), and output "
                f"'{output.name}' of the model has {outputs}. A new last layer for them: --classes auto"
            )

    def flat_targets(self) -> list[Note]:
        """Arrays of one number for each row, where an output has a column of them."""
        if self.table.loose:  # rows of a table have no shape to speak of
            return []
        return [
            Note(
                "target",
                made.columns[0],
                f"target {made.columns[0]!r} has shape [{self.table.rows}]: taken as a column [N, 1]",
            )
            for made in self.goals(tuple(self.losses or ()))
            if made.column
        ]

    def few_classes(self) -> list[Note]:
        """A hint where the model tells more classes apart than the data have."""
        shape = None if self.loss not in LABELLED else self.output.shape
        outputs = shape[1] if shape is not None and len(shape) == 2 else None
        count = len(self.matched.classes)
        if not isinstance(outputs, int) or not 1 < count < outputs:
            return []
        text = f"output '{self.output.name}' has {outputs} classes, and the data have {count}"
        hint = "--classes auto makes a new last layer for them"
        return [Note("classes", self.output.name, text, hint)]

    def batch_size(self, wanted: int) -> tuple[int, bool]:
        """The rows of a batch, and whether the model fixes them."""
        sizes = {
            v.shape[0]
            for v in self.model.graph.inputs
            if v.name in self.matched.inputs and self.matched.inputs[v.name].columns and v.shape
        }
        fixed = sizes.pop() if len(sizes) == 1 else None
        return (fixed, True) if isinstance(fixed, int) else (wanted, False)

    def all_rows(self, names: tuple[str, ...], batch_size: int) -> Batches:
        """The whole table in order, `names` being the trainer's targets."""
        size, fixed = self.batch_size(batch_size)
        return Batches(self.table, self.matched, self.goals(names), size, whole_only=fixed)


@dataclass
class Opened:
    """A model and a table, and what the table's targets are for the model."""

    path: Any
    original: ir.Model
    model: ir.Model
    table: Table
    ignore: tuple[str, ...]
    aim: Matched
    losses: dict[str, str] | None
    forms: Forms
    flags: Mapping[str, Any]

    def prepared(self, changed: Any = None) -> Prepared:
        """Give every input its columns; `changed` is the model that takes the place of the file's."""
        model = self.model if changed is None else read_model(changed)[1]
        matched = feed_inputs(model, self.table, self.aim, self.ignore, self.forms)
        check_flags(self.flags, matched)
        path = self.path if changed is None else changed
        return Prepared(path, model, self.table, matched, self.losses, matched.notes)

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
        count = int(labels.max()) + 1
        if count > max(MANY_CLASSES, 100 * len(labels)):
            raise ConfigError(
                f"--classes auto: the target '{self.aim.target}' holds the label {count - 1:,} and {len(labels):,} "
                "different ones, so that most classes have no rows: number them from 0 on, or say --classes N"
            )
        return count

    @property
    def labelled(self) -> bool:
        """Whether the target is one column of classes."""
        columns = self.aim.target_columns
        loss = next(iter(self.losses.values())) if self.losses else None
        return loss in LABELLED and len(columns) == 1 and self.table.columns[columns[0]].shape == ()


def open_files(
    path: Any, data: str, request: Request, new_classes: bool = False, tried: bool = False
) -> Opened:
    """Read both files, and find target and loss where they are not given.

    `new_classes`: the names of classes that an earlier run wrote into the model do not count.
    `tried`: the model was loaded by onnxruntime before.
    """
    original, model = read_model(path)
    losses = request.losses()
    _check_outputs(model, losses)
    # A model in memory came from a file that was loaded before.
    with first_load(path) if is_path(path) and not tried else contextlib.nullcontext():
        forms = read_forms(path, original, request.inputs)
        table = files.read(data)
        check_inputs(model, table, forms.constants)
        texts = forms.texts.columns
        aim = find_target(model, table, request.target, request.ignore, tuple(losses), texts)
        if not new_classes:
            _use_stored_classes(path, original, table, aim)
    if not aim.target:
        _own_loss(model, table, request.loss, aim.notes)
        return Opened(
            path, original, model, table, request.ignore, aim, None, forms, request.inputs
        )
    found = _paired(model, table, aim, losses)
    return Opened(path, original, model, table, request.ignore, aim, found, forms, request.inputs)


def prepare(path: Any, data: str, request: Request) -> Prepared:
    """Read both files, give every input its columns, and find target and loss where they are not given."""
    return open_files(path, data, request).prepared()


def _check_outputs(model: ir.Model, losses: dict[str, str]) -> None:
    known = [v.name for v in model.graph.outputs]
    for name in losses:
        if name and name not in known:
            listed = ", ".join(map(repr, known))
            raise ConfigError(f"the model has no output {name!r}; its outputs are {listed}")


def _paired(model: ir.Model, table: Table, aim: Matched, losses: dict[str, str]) -> dict[str, str]:
    """A loss for every output that has targets, guessed where it is not given."""
    _check_outputs(model, dict.fromkeys(aim.targets, ""))
    if set(aim.targets) == {""} and len(losses) == 1:
        aim.targets = {next(iter(losses)): aim.targets[""]}
    found = {}
    for output, columns in aim.targets.items():
        given = losses.get(output, losses.get("", ""))
        found[output or float_output(model).name] = given or _guess(
            model, table, aim, output, columns
        )
    missing = [o for o in losses if o and o not in found]
    if missing:
        raise ConfigError(
            f"--loss is of output '{missing[0]}', and --target gives it no column: --target {missing[0]}=COLUMN"
        )
    return found


def stored_classes(model: ir.Model) -> list[str]:
    """The names of the classes that an earlier run wrote into the model; empty for other models."""
    try:
        return [str(name) for name in parse_record(model.metadata_props.get(CLASSES, "[]"))]
    except (ValueError, TypeError):
        return []


def known_classes(path: Any, model: ir.Model) -> tuple[list[str], str]:
    """The names of a model's classes and who says so: an earlier run, or a config.json beside it; none for others."""
    stored = stored_classes(model)
    if stored or not is_path(path):
        return stored, "the model's own list"
    folder = Path(path).parent
    places = [folder, *([folder.parent] if folder.name == "onnx" else [])]
    file = next((p / "config.json" for p in places if (p / "config.json").is_file()), None)
    try:
        names = read_json(file)["id2label"] if file is not None else {}
        listed = [str(names[str(number)]) for number in range(len(names))]
    except (FileError, KeyError, TypeError):
        return [], ""  # a hint, no more
    return listed, "config.json beside the model"


def _use_stored_classes(path: Any, model: ir.Model, table: Table, matched: Matched) -> None:
    stored, by = known_classes(path, model)
    if by.startswith("config") and not set(matched.classes) <= set(stored):
        return
    if stored and matched.target and table.columns[matched.target].dtype.kind in "US":
        matched.classes = stored
        text = f"target '{matched.target}' is text: numbered as in {by} of {len(stored)} classes"
        said = Note("classes", matched.target, text)
        matched.notes = [*(n for n in matched.notes if n.kind != "classes"), said]


def float_output(model: ir.Model) -> ir.Value:
    for value in model.graph.outputs:
        if value.dtype is not None and value.dtype.numpy().kind == "f":
            return value
    raise DataError("the model has no float output that a loss could judge")


def _own_loss(model: ir.Model, table: Table, loss: str, notes: list[Note]) -> None:
    scalar = next(
        (v for v in model.graph.outputs if v.shape is not None and len(v.shape) == 0), None
    )
    if loss or scalar is None:
        raise DataError(
            f"{table.source} has no target: every column is an input of the model. Name the target with --target"
        )
    text = f"loss: the model's own, output '{scalar.name}', because the data has no target"
    notes.append(Note("loss", scalar.name, text))


def _sample(table: Table, aim: Matched, columns: tuple[str, ...]) -> np.ndarray:
    """Some targets, as the numbers that they will be."""
    rank = 1 + len(table.columns[columns[0]].shape)
    if table.columns[columns[0]].dtype.kind in "US":
        return np.arange(len(aim.classes)).reshape(-1, *[1] * (rank - 1))
    if is_ragged(table, columns[0]):
        return table.words(columns[0]).reshape(-1, *[1] * (rank - 1))
    parts = [table.head(name) for name in columns]
    return parts[0] if len(parts) == 1 else np.stack(parts, 1)


def _guess(
    model: ir.Model, table: Table, aim: Matched, output: str, columns: tuple[str, ...]
) -> str:
    sample = _sample(table, aim, columns)
    found = guess(model, sample, output)
    if not found.loss:
        raise ConfigError(f"{found.because}: give the loss with --loss")
    aim.notes.append(Note("loss", output, f"loss: {found.loss}, because {found.because}"))
    if len(np.unique(sample)) == 1:
        text = f"every target is {sample.flat[0]}: there is nothing to tell apart"
        aim.notes.append(Note("constant", columns[0], text))
    return found.loss
