"""One run from a Config: read, match, guess, train, compare, write."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onnxgrad.errors import DataError
from onnxgrad.graph import load
from onnxgrad.job import data as files
from onnxgrad.job.config import Config, ConfigError, dump
from onnxgrad.job.matching import match
from onnxgrad.train.callbacks import Callback, Checkpoint, CSVLogger, EarlyStopping
from onnxgrad.train.guess import guess_loss
from onnxgrad.train.trainer import Trainer

METRICS = {
    "cross_entropy": "accuracy",
    "bce": "accuracy",
    "mse": "mae,r2",
    "l1": "mae,r2",
    "huber": "mae,r2",
}


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
    seconds: float = 0.0
    stop: str = ""


class Run:
    """Prepared by the constructor, so that everything that can be refused is refused before the first step."""

    def __init__(self, model: str, config: Config, resume: Path | None = None):
        self.model, self.config, self.resume = model, config, resume
        if not config.data:
            raise ConfigError("no data: name a file with --data")
        if not config.output:
            raise ConfigError("no output: name the file to write with -o")
        prepared = load(model)
        matched = match(prepared, files.read(config.data), config.target, config.data)
        if matched.target is None:
            raise DataError(f"{config.data} has no target: name it with --target")
        self.x, self.y, self.classes = matched.inputs, matched.target, matched.classes
        self.notes = matched.notes
        self.validation = self._validation(prepared)
        self.loss = config.loss or self._guess_loss()
        metrics = config.metrics or METRICS.get(self.loss, "")
        self.trainer = Trainer(
            model, loss=self.loss, optimizer=config.optimizer, lr=config.lr, trainable=_patterns(config.trainable),
            metrics=[m for m in metrics.split(",") if m], schedule=config.schedule, warmup=config.warmup,
            clip_norm=config.clip or None, accumulate=config.accumulate, freeze_bn=config.freeze_bn,
            dropout=config.dropout if config.dropout >= 0 else None, seed=config.seed, threads=config.threads or None,
        )  # fmt: skip
        self.notes += self.trainer.notes
        self.folder = resume or _new_folder(config, model)
        self._arguments = {"model": str(model), **dataclasses.asdict(config)}

    def _validation(self, prepared) -> Any:
        text = self.config.val
        try:
            share = float(text)
        except ValueError:
            matched = match(prepared, files.read(text), self.config.target, text)
            return matched.inputs, matched.target
        if share == 0:
            return None
        rows = len(self.y)
        count = max(1, round(rows * share))
        if not 0 < share < 1 or count >= rows:
            raise ConfigError(
                f"--val is {text}: expected a share between 0 and 1 that leaves rows of the {rows}, or a file"
            )
        order = np.random.default_rng([self.config.seed, 7]).permutation(rows)
        kept, rest = np.sort(order[:count]), np.sort(order[count:])
        held = {n: a[kept] for n, a in self.x.items()}, self.y[kept]
        self.x, self.y = {n: a[rest] for n, a in self.x.items()}, self.y[rest]
        self.notes.append(
            f"validation: {count:,} of {rows:,} rows, set aside by seed {self.config.seed}"
        )
        return held

    def _guess_loss(self) -> str:
        try:
            loss, reason = guess_loss(self.model, self.y)
        except ValueError as error:
            raise ConfigError(f"{error} with --loss") from error
        self.notes.append(f"loss: {loss}, because {reason}")
        return loss

    def start(self, *callbacks: Callback) -> Result:
        """Train, and write the tuned model, the run folder and the report."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "args.yaml").write_text(f"# model: {self.model}\n" + dump(self.config))
        (self.folder / "args.json").write_text(json.dumps(self._arguments, indent=1) + "\n")
        held = self.validation or (self.x, self.y)
        batch = self.config.batch_size
        result = Result(
            self.config,
            str(self.model),
            self.folder,
            self.notes,
            self.trainer.evaluate(*held, batch_size=batch),
        )
        started_from = self.trainer.get_weights()
        recorder, started = Recorder(result), time.monotonic()
        history = self.trainer.fit(
            self.x, self.y, validation=self.validation, epochs=self.config.epochs, batch_size=batch,
            callbacks=[*self._callbacks(), recorder, *callbacks], max_time=self.config.max_time or None,
            resume=self.folder / "checkpoints" if self.resume else None,
        )  # fmt: skip
        result.epochs, result.stop = list(history.epochs), history.stopped
        result.seconds = time.monotonic() - started
        result.after = self.trainer.evaluate(*held, batch_size=batch)
        self._describe(result, held, started_from)
        self.trainer.save(self.config.output)
        from onnxgrad.job.report import write_report

        write_report(result, self.folder / "report.html")
        return result

    def _callbacks(self) -> list[Callback]:
        monitor = "val_loss" if self.validation else None
        made: list[Callback] = [CSVLogger(self.folder / "results.csv")]
        if self.config.patience:
            made.append(EarlyStopping(monitor or "loss", patience=self.config.patience))
        made.append(Checkpoint(self.folder / "checkpoints", monitor=monitor))
        return made

    def _describe(self, result: Result, held, started_from) -> None:
        for name, array in self.trainer.get_weights().items():
            wide = array.astype(np.float64)
            change = np.linalg.norm(wide - started_from[name]) if name in started_from else 0.0
            row = {"name": name, "shape": list(array.shape), "norm": float(np.linalg.norm(wide))}
            result.parameters.append({**row, "change": float(change)})
        if self.loss != "cross_entropy" or np.ndim(held[1]) != 1:
            return
        predicted = np.asarray(self.trainer.predict(held[0], batch_size=self.config.batch_size))
        if predicted.ndim == 2 and predicted.shape[1] <= 50:
            size = predicted.shape[1]
            result.confusion = np.zeros((size, size), int)
            np.add.at(result.confusion, (np.asarray(held[1]).astype(int), predicted.argmax(1)), 1)
            result.classes = self.classes or [str(i) for i in range(size)]


class Recorder(Callback):
    """Keeps the loss of every step, thinned out so that a long run stays small."""

    def __init__(self, result: Result):
        self.result, self.stride = result, 1

    def on_step_end(self, loop, logs) -> None:
        if loop.trainer.steps % self.stride == 0:
            keys = ("loss", "lr", "grad_norm")
            self.result.steps.append(
                {"step": loop.trainer.steps, **{k: logs[k] for k in keys if k in logs}}
            )
        if len(self.result.steps) > 2000:
            self.result.steps, self.stride = self.result.steps[::2], self.stride * 2


def saved_arguments(folder: Path) -> dict[str, Any]:
    """The model and the settings of an earlier run."""
    path = folder / "args.json"
    if not path.exists():
        raise ConfigError(f"{folder} is no run folder: it has no args.json")
    return json.loads(path.read_text())


def _patterns(text: str) -> Any:
    return text if text in ("all", "head") else [part for part in text.split(",") if part]


def _new_folder(config: Config, model: str) -> Path:
    if config.run_dir:
        return Path(config.run_dir)
    stem = Path(model).stem
    number = 1
    while (Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return Path("runs") / f"{stem}-{number}"
