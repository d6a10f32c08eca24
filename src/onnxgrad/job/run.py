"""One run from a Config: read, match, guess, train, compare, write."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from onnxgrad.data import read as files
from onnxgrad.data.augment import Augment
from onnxgrad.data.batches import Batches
from onnxgrad.data.matching import feed_inputs
from onnxgrad.data.table import is_number
from onnxgrad.errors import ConfigError, DataError
from onnxgrad.files.lock import Lock
from onnxgrad.files.models import ModelFile
from onnxgrad.job.batch_size import free_batch
from onnxgrad.job.columns import TableStage
from onnxgrad.job.config import Config
from onnxgrad.job.folder import check_folder, check_output, new_folder, take, write_arguments
from onnxgrad.job.inputs import kept
from onnxgrad.job.judging import judge
from onnxgrad.job.objective import Objective
from onnxgrad.job.outcome import Recorder, Result, Watched, describe
from onnxgrad.job.prepare import CLASSES, Opened, Prepared, Request, open_files
from onnxgrad.job.quantised import Comparison, Version, calibration, measured
from onnxgrad.job.report import write_report
from onnxgrad.job.rows import Rows, Split
from onnxgrad.job.schedule import plateau_notes, schedule_of
from onnxgrad.job.texts import split_names
from onnxgrad.model.change import Change
from onnxgrad.model.head import Head
from onnxgrad.model.lora import Lora
from onnxgrad.model.quantize import Quantize, quantised
from onnxgrad.model.trainable import TrainableModel
from onnxgrad.notes import Note
from onnxgrad.train import trackers
from onnxgrad.train.callbacks import Callback, Checkpoint, CSVLogger, EarlyStopping
from onnxgrad.train.files.checkpoint import checkpoints
from onnxgrad.train.parallel import Communicator, Group
from onnxgrad.train.parallel.division import MICRO_BATCHES
from onnxgrad.train.trainer import Trainer

SAVE_SECONDS = 2.0  # between checkpoints: an epoch may be shorter than the writing of one


class TrainingJob:
    """Prepared by the constructor, so that everything that can be refused is refused before the first step."""

    def __init__(
        self,
        model: str,
        config: Config,
        resume: Path | None = None,
        rows: Rows | None = None,
        communicator: Communicator | None = None,
        *,
        leaves_folder: bool = True,
    ):
        """`rows` are those to train on and those to validate on; by default what --val says.

        `leaves_folder`: make a run folder; without one the job can be looked at, and not be started.
        """
        model = self._begin(model, config, resume, communicator)
        split = Split.parse(config.split)
        request = Request.of(config, split.columns())
        self.ignore = request.ignore
        opened = open_files(
            model, config.data, request, bool(config.classes), tried=rows is not None
        )
        self.rows = rows or self._rows(split, opened)
        self.validates = self.rows.held is not None or not is_number(config.val)
        self.subject: Any = model  # what is trained, by way of the changes
        stage = TableStage(opened.model, opened.table, opened.aim, request.ignore, config)
        self.changes: list[Change] = stage.changes(self.rows.train)
        if config.classes:
            self.changes.append(Head(opened.class_count(config.classes), seed=config.seed))
        changed = TrainableModel(model, changes=self.changes).source.proto if self.changes else None
        prepared = self._with_free_batch(opened, opened.prepared(changed))
        self.prepared = prepared
        self.notes = [*prepared.table.notes, *prepared.notes, *prepared.few_classes()]
        objective = Objective(prepared, config, self.rows.train)
        self.loss = objective.losses()
        self.notes += [*filter(None, [self.rows.note]), *stage.notes, *objective.notes]
        self.notes += [*prepared.flat_targets(), *plateau_notes(config, self.validates)]
        self.trainer = self._trainer(prepared)
        self.data, self.validation = self._split(prepared)
        if self.loss is not None:
            self._settle()
        self.notes += self.trainer.notes
        known = len(self.trainer.notes)
        for batches in filter(None, (self.data, self.validation)):
            self._check_rows(batches)
        self.notes += self.trainer.notes[known:]  # targets that came in another form
        self.comparison: Comparison | None = None
        if config.quantize:
            self._quantise(prepared)
        trackers.check(split_names(config.report_to))
        if resume is None and leaves_folder:  # last: a run that is refused leaves no folder
            self._take(lambda: new_folder(config, model))

    def _begin(self, model: Any, config: Config, resume: Path | None, communicator: Any) -> Any:
        """Check what can be checked before anything is read; return the model's file."""
        model = ModelFile.of(model)
        self.model, self.resume = model, resume
        self.communicator, self.group = communicator, Group(communicator)
        config.check()
        self.config = divided(config, communicator)
        adapter = lora_of(config) is not None and not config.merge
        self.group.first(
            "checking the output", lambda: check_output(config, model, adapter=adapter)
        )
        if resume is not None:
            self.folder = resume
            self._take(lambda: (resume, take(resume)))
        else:
            check_folder(config)
        return model

    def _take(self, taking: Callable[[], tuple[Path, Lock]]) -> None:
        """Take the run folder, in the process that writes; the others learn its name."""

        def first() -> str:
            self.folder, self._lock = taking()
            return str(self.folder)

        self.folder = Path(self.group.first("taking the run folder", first))

    def _rows(self, split: Split, opened: Opened) -> Rows:
        if not is_number(self.config.val):
            return Rows()
        share, seed = float(self.config.val), self.config.seed
        return split.resolved(opened.labelled).rows(opened.table, opened.aim.target, share, seed)

    def _with_free_batch(self, opened: Opened, prepared: Prepared) -> Prepared:
        """Free a batch that the model fixes, or add up the gradients of small ones; `accumulate` says how many."""
        self.accumulate, asked = self.config.accumulate, self.config.batch_size
        size, fixed = prepared.batch_size(asked)
        whole = self.config.micro_batches <= 1 and not self.config.fast_sum
        if not fixed or (size == asked and whole) or self.config.quantize or lora_of(self.config):
            return prepared
        rows = min(3 * size, prepared.table.rows // size * size)
        first = next(Batches(prepared.table, prepared.matched, [], max(rows, 1)).in_order())
        change = free_batch(self.model, self.changes, size, first.arrays) if rows > size else None
        if change is None and not whole:
            raise ConfigError(
                f"the model fixes its batch at {size} rows, and cannot be trained in parts of a batch: export it with "
                "an open batch size, or train in one process"
            )
        if change is None:
            self.accumulate *= max(1, round(asked / size))
            return prepared
        self.changes.append(change)
        proto = TrainableModel(self.model, changes=self.changes).source.proto
        return opened.prepared(proto)

    def _quantise(self, prepared: Prepared) -> None:
        """Go on with the integer model, calibrated on the rows to train on."""
        scores = self.trainer.evaluate(self.validation or self.data)
        self.comparison = Comparison([measured("float", self.model, scores, self._one_batch())])
        settings = quantize_of(self.config)
        names = self.trainer.input_names
        subject = TrainableModel(self.model, changes=self.changes).source.proto
        self.subject, change = quantised(
            subject, settings, lambda: calibration(self.data, names, settings.rows)
        )
        self.changes = [change]
        self.trainer = self._trainer(prepared)
        self.notes += change.describe()

    def _one_batch(self) -> dict[str, np.ndarray]:
        batch = next((self.validation or self.data).in_order())
        return {n: batch.arrays[n] for n in self.trainer.input_names}

    def _trainer(self, prepared: Prepared, config: Config | None = None) -> Trainer:
        config = config or self.config
        return Trainer(
            self.subject, loss=self.loss, optimizer=config.optimizer, lr=config.lr,
            trainable=_patterns(config.trainable), metrics=prepared.metrics(config.metrics),
            schedule=schedule_of(config, self.validates), warmup=config.warmup, clip_norm=config.clip or None,
            accumulate=self.accumulate, freeze_bn=config.freeze_bn,
            dropout=config.dropout if config.dropout >= 0 else None, seed=config.seed,
            lora=lora_of(config), tie=config.tie, untie=config.untie, keep_float32=config.keep_float32,
            threads=config.threads or None, changes=self.changes, communicator=self.communicator,
            micro_batches=config.micro_batches or None, reproducible=not config.fast_sum,
        )  # fmt: skip

    # ---- rows ----------------------------------------------------------------------------------

    def _split(self, prepared: Prepared) -> tuple[Batches, Batches | None]:
        """The rows to train on, and those to validate on."""
        size, fixed = prepared.batch_size(self.config.batch_size)
        mixed = Augment.parse(self.config.augment).mixup > 0
        goals = prepared.goals(self.trainer.target_names, self.config.sample_weights, mixed)
        more = dict(shuffle=True, seed=self.config.seed, whole_only=fixed, augment=self._augment())
        if fixed:
            more_rows = f", {self.accumulate} of them for each step" if self.accumulate > 1 else ""
            self._say("batch size", f"batch size: {size}, which the model fixes{more_rows}")
        table, matched, held = prepared.table, prepared.matched, None
        if self.rows.held is not None:
            held = Batches(table, matched, goals, size, chosen=self.rows.held, whole_only=fixed)
        elif not is_number(self.config.val):
            other = files.read(self.config.val)
            again = feed_inputs(prepared.model, other, matched, self.ignore, matched.forms)
            held = Batches(other, again, goals, size, whole_only=fixed)
            self._say("validation", f"validation: the {other.rows:,} rows of {self.config.val}")
        data = Batches(table, matched, goals, size, chosen=self.rows.train, **more)
        self._check_sizes(data, held, size)
        return data, held

    def _augment(self) -> Augment:
        """How pictures are changed at random."""
        found = Augment.parse(self.config.augment)
        if found and "pictures" not in self.prepared.matched.kinds:
            raise ConfigError("--augment is for pictures, and the data have none")
        if found:
            text = f"pictures are changed at random: {found}; those of the validation rows are not"
            self._say("augment", text)
        return found

    def _check_sizes(self, data: Batches, held: Batches | None, size: int) -> None:
        for batches, what in ((data, "train"), (held, "validate")):
            if batches is not None and not batches.rows:
                raise DataError(
                    f"{batches.table.source} leaves fewer rows to {what} on than the {size} of a batch of the model"
                )
        if size > data.rows:
            self._say(
                "batch size", f"batch size: {size:,}, so every step takes all {data.rows:,} rows"
            )

    def _say(self, kind: str, text: str) -> None:
        self.notes.append(Note(kind, self.config.data, text))

    def _settle(self) -> None:
        """Let the first rows say what the loss cannot know: where the classes are, what is a probability."""
        first = next(self.data.in_order(), None)
        if first is not None:
            self.trainer.settle(first)

    def _check_rows(self, batches: Batches) -> None:
        """Look at every row once, before the first step; a message names the file and its own column."""
        endless: dict[str, str] = {}
        try:
            self.trainer.check(Watched(batches, endless))
        except DataError as error:
            text, source = str(error), batches.table.source
            if "holds the label" in text and not self.config.classes:
                text += (
                    ". For other classes than the model's, --classes auto makes a new last layer"
                )
            raise DataError(text if source in text else f"{source}: {text}") from error
        every = reversed(self.group.gather("the check of the rows", endless))
        for name, place in {n: p for each in every for n, p in each.items()}.items():
            text = f"input '{name}' holds infinity in {place} of {batches.table.source}"
            self.notes.append(Note("infinity", name, text))

    # ---- the run -------------------------------------------------------------------------------

    def start(self, *callbacks: Callback) -> Result:
        """Train, and write the tuned model, the run folder and the report."""
        if not self.resume and self.group.writes:
            self._write_arguments()
        held = self.validation or self.data
        result = Result(
            self.config, str(self.model), self.folder, self.notes, self.trainer.evaluate(held)
        )
        self._train_head()
        started_from = self.trainer.get_weights()
        recorder = Recorder(result, self._write_arguments if self.group.writes else lambda: None)
        history = self.trainer.fit(
            self.data, validation=self.validation, epochs=self.config.epochs,
            batch_size=self.data.batch_size, callbacks=[*self._callbacks(), recorder, *callbacks],
            max_time=self.config.max_time or None, resume=self._newest(),
        )  # fmt: skip
        result.epochs, result.stop = list(history.epochs), history.stopped
        result.seconds, result.trained_steps = recorder.seconds(), self.trainer.steps
        result.after = self.trainer.evaluate(held)
        describe(result, self.trainer, held, started_from)
        if self.group.writes:
            self._look(result, held)
        known = len(self.trainer.notes)
        self._save()
        self.notes += self.trainer.notes[known:]
        if self.comparison is not None and self.group.writes:
            written = measured("trained", self.config.output, result.after, self._one_batch())
            self.comparison.versions += [Version("post-training", result.before), written]
            result.comparison = self.comparison

        if self.group.writes:
            write_report(result, self.folder / "report.html")
        return result

    def _look(self, result: Result, held: Any) -> None:
        """Add what the rows that were set aside show beside their scores."""
        result.judged = judge(self.trainer, held, self.prepared)

    def _metadata(self) -> dict[str, str] | None:
        """What is written into the model beside its weights."""
        classes = self.prepared.matched.classes
        made, said = kept(self.prepared.matched, self.config.output, write=self.group.writes)
        self.notes += said
        return {**made, CLASSES: json.dumps(classes)} if classes else made

    def _save(self) -> None:
        """Write the tuned model, or the folder of an adapter."""
        if lora_of(self.config) and not self.config.merge:
            self.trainer.save_adapter(self.config.output)
        else:
            self.trainer.save(self.config.output, self._metadata())

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
        begun = self.resume and self.group.first("looking", lambda: bool(checkpoints(folder)))
        return folder if begun else None

    @property
    def speaks(self) -> bool:
        """Whether this process tells a person how the run ended: of several the first."""
        return self.group.writes

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
        every = self.config.save_every or None
        made.append(
            Checkpoint(folder, monitor=monitor, least_seconds=SAVE_SECONDS, every_seconds=every)
        )
        settings = {"model": str(self.model), **dataclasses.asdict(self.config)}
        names = split_names(self.config.report_to) if self.group.writes else ()
        made += trackers.named(names, self.folder / "tensorboard", self.folder.name, settings)
        return made


def divided(config: Config, communicator: Communicator | None) -> Config:
    """The settings with the number of micro-batches, so that a resumed run takes the same."""
    if config.micro_batches or config.fast_sum:
        return config
    return dataclasses.replace(config, micro_batches=1 if communicator is None else MICRO_BATCHES)


def lora_of(config: Config) -> Lora | None:
    """The adapter that a run trains: the settings of --lora, and where --lora-from begins."""
    if not config.lora and not config.lora_from:
        return None
    settings = Lora.parse(config.lora)
    return dataclasses.replace(settings, start=config.lora_from) if config.lora_from else settings


def quantize_of(config: Config) -> Quantize:
    """How a run quantises: --quantize, and what the flags beside it say."""
    more = {"scales": config.quantize_scales} if config.quantize_scales else {}
    return Quantize.parse(config.quantize, nodes=config.quantize_nodes, **more)


def _patterns(text: str) -> Any:
    return text if text in ("all", "head") else list(split_names(text))
