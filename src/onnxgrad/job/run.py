"""One run from a Config: read, match, guess, train, compare, write."""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onnxgrad.data import read as files
from onnxgrad.data.arrays import Batch
from onnxgrad.data.batches import Batches
from onnxgrad.data.matching import match
from onnxgrad.data.table import is_number
from onnxgrad.errors import ConfigError, DataError
from onnxgrad.job.config import Config
from onnxgrad.job.folder import check_folder, check_output, new_folder, take, write_arguments
from onnxgrad.job.prepare import CLASSES, Prepared, prepare, split_names
from onnxgrad.job.quantised import Comparison, Version, calibration, measured
from onnxgrad.job.report import write_report
from onnxgrad.model.change import Change
from onnxgrad.model.head import Head
from onnxgrad.model.lora import Lora
from onnxgrad.model.quantize import Quantize, quantised
from onnxgrad.model.trainable import TrainableModel
from onnxgrad.train import schedules
from onnxgrad.train.callbacks import Callback, Checkpoint, CSVLogger, EarlyStopping
from onnxgrad.train.files.checkpoint import checkpoints
from onnxgrad.train.trainer import Trainer

SAVE_SECONDS = 2.0  # between checkpoints: an epoch may be shorter than the writing of one
MOST_CLASSES = 50  # of a confusion matrix that one can read


@dataclass
class Result:
    """What a run was and became; the report is made of it."""

    config: Config
    model: str
    folder: Path
    notes: list[str]
    before: dict[str, float]
    after: dict[str, float] = field(default_factory=dict)
    epochs: list[dict[str, float]] = field(default_factory=list)
    steps: list[dict[str, float]] = field(default_factory=list)
    parameters: list[dict[str, Any]] = field(default_factory=list)
    confusion: np.ndarray | None = None
    classes: list[str] = field(default_factory=list)
    timing: dict[str, float] = field(default_factory=dict)  # seconds by part
    trained_steps: int = 0
    seconds: float = 0.0
    stop: str = ""
    comparison: Comparison | None = None


class TrainingJob:
    """Prepared by the constructor, so that everything that can be refused is refused before the first step."""

    def __init__(self, model: str, config: Config, resume: Path | None = None):
        self.model, self.config, self.resume = model, config, resume
        config.check()
        check_output(config, model, adapter=lora_of(config) is not None and not config.merge)
        if resume is not None:
            self.folder, self._lock = resume, take(resume)
        else:
            check_folder(config)
        prepared = self._prepare(model)
        self.subject: Any = model  # what is trained, by way of the changes
        self.changes: list[Change] = []
        if config.classes:
            self.changes = [Head(prepared.class_count(config.classes), seed=config.seed)]
            prepared = self._prepare(TrainableModel(model, changes=self.changes).source.proto)
        self.prepared, self.loss, self.notes = prepared, prepared.loss, list(prepared.notes)
        self.trainer = self._trainer(prepared)
        self.data, self.validation = self._split(prepared)
        self.notes += [str(note) for note in self.trainer.notes]
        for batches in filter(None, (self.data, self.validation)):
            self._check_rows(batches)
        self._check_logits()
        self.comparison: Comparison | None = None
        if config.quantize:
            self._quantise(prepared)
        if resume is None:  # last: a run that is refused leaves no folder
            self.folder, self._lock = new_folder(config, model)

    def _prepare(self, model: Any) -> Prepared:
        config = self.config
        return prepare(model, config.data, config.target, config.ignore, config.loss)

    def _quantise(self, prepared: Prepared) -> None:
        """Go on with the integer model, calibrated on the rows to train on."""
        scores = self.trainer.evaluate(self.validation or self.data)
        self.comparison = Comparison([measured("float", self.model, scores, self._one_batch())])
        settings = Quantize.parse(self.config.quantize)
        feeds = calibration(self.data, self.trainer.input_names, settings.rows)
        subject = TrainableModel(self.model, changes=self.changes).source.proto
        self.subject, change = quantised(subject, settings, feeds)
        self.changes = [change]
        self.trainer = self._trainer(prepared)
        self.notes += [str(note) for note in change.describe()]

    def _one_batch(self) -> dict[str, np.ndarray]:
        batch = next((self.validation or self.data).in_order())
        return {n: batch.arrays[n] for n in self.trainer.input_names}

    def _trainer(self, prepared: Prepared, config: Config | None = None) -> Trainer:
        config = config or self.config
        return Trainer(
            self.subject, loss=self.loss, optimizer=config.optimizer, lr=config.lr,
            trainable=_patterns(config.trainable), metrics=prepared.metrics(config.metrics),
            schedule=schedule_of(config), warmup=config.warmup, clip_norm=config.clip or None,
            accumulate=config.accumulate, freeze_bn=config.freeze_bn,
            dropout=config.dropout if config.dropout >= 0 else None, seed=config.seed,
            lora=lora_of(config), tie=config.tie, untie=config.untie, keep_float32=config.keep_float32,
            threads=config.threads or None, changes=self.changes,
        )  # fmt: skip

    # ---- rows ----------------------------------------------------------------------------------

    def _split(self, prepared: Prepared) -> tuple[Batches, Batches | None]:
        """The rows to train on, and those to validate on."""
        size, fixed = prepared.batch_size(self.config.batch_size)
        goal = prepared.goal(self.trainer.target_names[0]) if self.loss is not None else None
        more = dict(shuffle=True, seed=self.config.seed, whole_only=fixed)
        if fixed:
            self.notes.append(f"batch size: {size}, which the model fixes")
        text = self.config.val
        if is_number(text):
            rest, kept = self._shares(float(text), prepared.table.rows)
            held = kept is not None and Batches(
                prepared.table, prepared.matched, goal, size, chosen=kept, whole_only=fixed
            )
        else:
            table = files.read(text)
            names = prepared.matched.target, split_names(self.config.ignore)
            rest, held = (
                None,
                Batches(table, match(prepared.model, table, *names), goal, size, whole_only=fixed),
            )
            self.notes.append(f"validation: the {table.rows:,} rows of {text}")
        data = Batches(prepared.table, prepared.matched, goal, size, chosen=rest, **more)
        self._check_sizes(data, held or None, size)
        return data, held or None

    def _shares(self, share: float, rows: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        if share == 0:
            return None, None
        if not 0 < share < 1:
            raise ConfigError(f"--val is {share:g}, expected a share from 0 to 1, or a file")
        count = max(1, round(rows * share))
        if count >= rows:
            raise ConfigError(
                f"--val is {share:g}, which leaves nothing of {rows:,} rows to train on; 0 sets none aside"
            )
        order = np.random.default_rng([self.config.seed, 7]).permutation(rows)
        self.notes.append(
            f"validation: {count:,} of {rows:,} rows, set aside by seed {self.config.seed} (--val)"
        )
        return np.sort(order[count:]), np.sort(order[:count])

    def _check_sizes(self, data: Batches, held: Batches | None, size: int) -> None:
        for batches, what in ((data, "train"), (held, "validate")):
            if batches is not None and not batches.rows:
                raise DataError(
                    f"{batches.table.source} leaves fewer rows to {what} on than the {size} of a batch of the model"
                )
        if size > data.rows:
            self.notes.append(f"batch size: {size:,}, so every step takes all {data.rows:,} rows")

    def _check_logits(self) -> None:
        """Cross entropy takes logits; a softmax that is not one operator is seen only in its numbers."""
        if self.loss != "cross_entropy" or self._takes_logits():
            return
        batch = next(self.data.in_order())
        inputs = {n: batch.arrays[n] for n in self.trainer.input_names}
        output = self.trainer.predict(inputs, batch_size=self.data.batch_size)
        output = next(iter(output.values())) if isinstance(output, dict) else output
        if output.ndim == 2 and (output >= 0).all() and np.allclose(output.sum(1), 1, atol=1e-3):
            name = self.prepared.output.name
            self.notes.append(
                f"output '{name}' adds up to 1: it holds probabilities, and cross_entropy takes what lies before a "
                "softmax; it will learn slowly"
            )

    def _takes_logits(self) -> bool:
        return any(note.kind == "logits" for note in self.trainer.notes)

    def _check_rows(self, batches: Batches) -> None:
        """Look at every row once, before the first step; a message names the file and its own column."""
        endless: dict[str, str] = {}
        try:
            self.trainer.check(Watched(batches, endless))
        except DataError as error:
            text = str(error)
            if batches.goal is not None:
                column = repr(batches.matched.target)
                text = text.replace(f"target {batches.goal.name!r}", f"target {column}")
            source = batches.table.source
            raise DataError(text if source in text else f"{source}: {text}") from error
        for name, place in endless.items():
            self.notes.append(f"input '{name}' holds infinity in {place} of {batches.table.source}")

    # ---- the run -------------------------------------------------------------------------------

    def start(self, *callbacks: Callback) -> Result:
        """Train, and write the tuned model, the run folder and the report."""
        if not self.resume:
            self._write_arguments()
        held = self.validation or self.data
        result = Result(
            self.config, str(self.model), self.folder, self.notes, self.trainer.evaluate(held)
        )
        self._train_head()
        started_from = self.trainer.get_weights()
        recorder = Recorder(result, self._write_arguments)
        history = self.trainer.fit(
            self.data, validation=self.validation, epochs=self.config.epochs,
            batch_size=self.data.batch_size, callbacks=[*self._callbacks(), recorder, *callbacks],
            max_time=self.config.max_time or None, resume=self._newest(),
        )  # fmt: skip
        result.epochs, result.stop = list(history.epochs), history.stopped
        result.seconds, result.trained_steps = recorder.seconds(), self.trainer.steps
        result.after = self.trainer.evaluate(held)
        self._describe(result, held, started_from)
        classes = self.prepared.matched.classes
        known = len(self.trainer.notes)
        if lora_of(self.config) and not self.config.merge:
            self.trainer.save_adapter(self.config.output)
        else:
            self.trainer.save(
                self.config.output, {CLASSES: json.dumps(classes)} if classes else None
            )
        self.notes += [str(note) for note in self.trainer.notes[known:]]
        if self.comparison is not None:
            written = measured("trained", self.config.output, result.after, self._one_batch())
            self.comparison.versions += [Version("post-training", result.before), written]
            result.comparison = self.comparison

        write_report(result, self.folder / "report.html")
        return result

    def _train_head(self) -> None:
        """Train the last layer alone for some epochs; a resumed run is beyond that."""
        if not self.config.head_first or self._newest() is not None:
            return
        settings = dataclasses.replace(self.config, trainable="head")
        head = self._trainer(self.prepared, settings)
        head.fit(self.data, epochs=self.config.head_first, batch_size=self.data.batch_size)
        self.trainer.set_weights(head.get_weights())

    def _write_arguments(self) -> None:
        write_arguments(self.folder, self.model, self.config)

    def _newest(self) -> Path | None:
        """Where to continue from; a run that was interrupted before its first checkpoint begins anew."""
        folder = self.folder / "checkpoints"
        return folder if self.resume and checkpoints(folder) else None

    @property
    def checkpointed(self) -> bool:
        """Whether there is something to resume from."""
        return bool(checkpoints(self.folder / "checkpoints"))

    def _callbacks(self) -> list[Callback]:
        monitor = "val_loss" if self.validation else None
        made: list[Callback] = [CSVLogger(self.folder / "results.csv")]
        if self.config.patience:
            made.append(EarlyStopping(monitor or "loss", patience=self.config.patience))
        folder = self.folder / "checkpoints"
        made.append(Checkpoint(folder, monitor=monitor, least_seconds=SAVE_SECONDS))
        return made

    def _describe(self, result: Result, held: Batches, started_from) -> None:
        result.timing = dict(self.trainer.clock.seconds)
        norms = self.trainer.gradient_norms()
        for name, array in self.trainer.get_weights().items():
            wide = array.astype(np.float64)
            change = float(np.linalg.norm(wide - started_from[name]))
            row = {"name": name, "shape": list(array.shape), "norm": float(np.linalg.norm(wide))}
            result.parameters.append({**row, "change": change, "gradient": norms.get(name)})
        if self.loss == "cross_entropy":
            self._confuse(result, held)

    def _confuse(self, result: Result, held: Batches) -> None:
        """Count which class was taken for which."""
        for batch in held.epoch(0):
            truth = batch.arrays[held.goal.name]
            inputs = {n: batch.arrays[n] for n in self.trainer.input_names}
            predicted = self.trainer.predict(inputs, batch_size=held.batch_size)
            predicted = next(iter(predicted.values())) if isinstance(predicted, dict) else predicted
            if np.ndim(truth) != 1 or predicted.ndim != 2 or predicted.shape[1] > MOST_CLASSES:
                return
            size = predicted.shape[1]
            if result.confusion is None:
                result.confusion = np.zeros((size, size), int)
            np.add.at(result.confusion, (truth.astype(int), predicted.argmax(1)), 1)
        names = self.prepared.matched.classes
        result.classes = [names[i] if i < len(names) else str(i) for i in range(size)]


class Recorder(Callback):
    """Keeps the loss of every step, thinned out so that a long run stays small; goes on after a resume."""

    def __init__(self, result: Result, on_begin: Callable[[], None]):
        self.result, self.stride, self.on_begin = result, 1, on_begin
        self.earlier, self.began = 0.0, time.monotonic()

    def on_fit_begin(self, loop) -> None:
        self.on_begin()  # a checkpoint was accepted by now: the settings of a resumed run may be replaced

    def seconds(self) -> float:
        """Of training, those before an interruption included."""
        return self.earlier + time.monotonic() - self.began

    def on_step_end(self, loop, logs) -> None:
        if loop.trainer.steps % self.stride == 0:
            keys = ("loss", "lr", "grad_norm")
            self.result.steps.append(
                {"step": loop.trainer.steps, **{k: logs[k] for k in keys if k in logs}}
            )
        if len(self.result.steps) > 2000:
            self.result.steps, self.stride = self.result.steps[::2], self.stride * 2

    def state(self) -> dict[str, Any]:
        return {"steps": self.result.steps, "stride": self.stride, "seconds": self.seconds()}

    def load_state(self, state, tensors) -> None:
        self.result.steps, self.stride = list(state["steps"]), state["stride"]
        self.earlier = state["seconds"]


class Watched:
    """Batches that pass by, with the first row of each input that holds infinity written down."""

    def __init__(self, batches: Batches, endless: dict[str, str]):
        self.batches, self.endless = batches, endless

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches as the rows lie, from number `start` on."""
        for batch in itertools.islice(self.batches.in_order(), start, None):
            for name in self.batches.matched.inputs:
                array = batch.arrays[name]
                if array.dtype.kind == "f" and name not in self.endless and np.isinf(array).any():
                    row = int(np.argwhere(np.isinf(array))[0][0])
                    self.endless[name] = batch.where(row)
            yield batch


def lora_of(config: Config) -> Lora | None:
    """The adapter that a run trains: the settings of --lora, and where --lora-from begins."""
    if not config.lora and not config.lora_from:
        return None
    settings = Lora.parse(config.lora)
    return dataclasses.replace(settings, start=config.lora_from) if config.lora_from else settings


def schedule_of(config: Config) -> schedules.Schedule:
    """The schedule that the flags mean."""
    try:
        return schedules.named(config.schedule, config.every, config.factor, config.floor)
    except ValueError as error:
        raise ConfigError(
            f"--{error}" if str(error).startswith("schedule") else str(error)
        ) from error


def _patterns(text: str) -> Any:
    return text if text in ("all", "head") else list(split_names(text))
