"""Several trainings instead of one: folds and repeated seeds, with mean and spread of their scores."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxgrad.errors import ConfigError
from onnxgrad.files.models import ModelFile
from onnxgrad.files.text import read_json
from onnxgrad.files.write import write_bytes
from onnxgrad.job.config import Config
from onnxgrad.job.folder import (
    ARGUMENTS,
    check_folder,
    check_output,
    new_folder,
    take,
    write_arguments,
)
from onnxgrad.job.outcome import Result
from onnxgrad.job.prepare import Request, open_files
from onnxgrad.job.report import write_report
from onnxgrad.job.rows import Rows, Split
from onnxgrad.job.run import TrainingJob
from onnxgrad.notes import Note
from onnxgrad.train.callbacks import Callback

SCORES = "scores.json"


@dataclass(frozen=True)
class Trial:
    """One training: its name, its seed, and the rows of a fold (None: what --val says)."""

    name: str
    seed: int
    rows: Rows | None


@dataclass(frozen=True)
class Spread:
    """Of one score over the trials: mean, and deviation of single ones (n - 1)."""

    mean: float
    deviation: float
    values: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.deviation:.2g}"


def spread(values: list[float]) -> Spread:
    """Mean and deviation; of one value the deviation is 0."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return Spread(float(np.mean(values)), deviation, tuple(values))


def wanted(config: Config) -> bool:
    """Whether the settings ask for more than one training."""
    return config.folds > 0 or config.repeat > 1


def read_scores(file: Path) -> dict[str, float]:
    """The scores of a trial that has ended. Raises ConfigError where the file is damaged."""
    try:
        return {str(name): float(score) for name, score in read_json(file).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file} is damaged: {error}; remove it to train again") from error


class Trials:
    """Folds and seeds, each in a folder of its own; then one training that writes the model.

    After folds it is on all rows: no single fold's model is better than that. After repeated seeds
    it is the first seed's, because to take the best would be to choose by luck.
    """

    def __init__(self, model: str, config: Config, resume: Path | None = None):
        model = ModelFile.of(model)
        self.model, self.config, self.resume = model, config, resume
        config.check()
        if config.folds == 1:
            raise ConfigError("--folds is 1, expected at least 2; 0 trains once")
        if config.lora or config.lora_from:
            raise ConfigError("--folds and --repeat train whole models; leave --lora out")
        check_output(config, model, adapter=False)
        self.trials = list(self._trials())
        if resume is None:
            check_folder(config)
            self.folder, self._lock = new_folder(config, model)
            write_arguments(self.folder, model, config)
        else:
            self.folder, self._lock = resume, take(resume)
        self.notes = [self._note()]

    def _note(self) -> Note:
        c = self.config
        folds = f"{c.folds} folds" if c.folds else "one split"
        last = (
            "the written model is trained on all rows after them"
            if c.folds
            else f"the written model is that of seed {c.seed}"
        )
        seeds = "1 seed" if c.repeat == 1 else f"{c.repeat} seeds"
        text = f"{len(self.trials) + 1} trainings: {folds}, {seeds}; {last}"
        return Note("trials", folds, text)

    def _trials(self) -> Iterator[Trial]:
        """All but the last training, which writes the model; without folds it is one of the seeds."""
        c = self.config
        for seed in range(c.seed, c.seed + c.repeat):
            if not c.folds:
                if seed != c.seed:
                    yield Trial(f"seed-{seed}", seed, None)
                continue
            for number, rows in enumerate(self._folds(seed), 1):
                name = f"fold-{number}" if c.repeat == 1 else f"seed-{seed}-fold-{number}"
                yield Trial(name, seed, rows)

    def _folds(self, seed: int) -> Iterator[Rows]:
        c, split = self.config, Split.parse(self.config.split)
        opened = open_files(self.model, c.data, Request.of(c, split.columns()), bool(c.classes))
        return split.resolved(opened.labelled).folds(opened.table, opened.aim.target, c.folds, seed)

    # ---- the run -----------------------------------------------------------------------------

    def scores(self) -> Iterator[tuple[Trial, dict[str, float]]]:
        """Train what is not trained yet, and yield every trial with its scores."""
        for trial in self.trials:
            file = self.folder / trial.name / SCORES
            if not file.exists():
                result = self._job(trial.name, trial.seed, trial.rows).start()
                write_bytes(file, (json.dumps(result.after) + "\n").encode())
            yield trial, read_scores(file)

    def last(self, found: list[dict[str, float]], *callbacks: Callback) -> Result:
        """Train the model that is written; the report shows the spread of all trials."""
        c = self.config
        said = Note("validation", "none", "trained on all rows: the folds have validated")
        rows = Rows(note=said) if c.folds else None
        job = self._job("final", c.seed, rows, c.output)
        result = job.start(*callbacks)
        every = found if c.folds else [dict(result.after), *found]
        result.trials = {name: spread([scores[name] for scores in every]) for name in every[0]}
        result.config = c
        result.folder = self.folder
        write_report(result, self.folder / "report.html")
        return result

    @property
    def speaks(self) -> bool:
        """Whether this process tells a person how the run ended: of several the first."""
        return True

    @property
    def checkpointed(self) -> bool:
        """Whether there is something to resume from."""
        return any((self.folder / trial.name).exists() for trial in self.trials)

    def _job(self, name: str, seed: int, rows: Rows | None, output: str = "") -> TrainingJob:
        folder = self.folder / name
        config = dataclasses.replace(
            self.config, run_dir=str(folder), seed=seed, folds=0, repeat=1,
            output=output or str(folder / "model.onnx"), val="0" if self.config.folds else self.config.val,
        )  # fmt: skip
        begun = folder if (folder / ARGUMENTS).exists() else None
        return TrainingJob(self.model, config, begun, rows)
