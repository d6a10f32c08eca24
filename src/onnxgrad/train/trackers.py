"""Trackers: callbacks that send a run's numbers to MLflow, Weights & Biases, Trackio or TensorBoard.

None is used unless it is asked for. Each package is imported when its callback is made.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from onnxgrad.errors import ConfigError
from onnxgrad.train.callbacks import Callback, TensorBoard

if TYPE_CHECKING:
    from onnxgrad.train.loop.epoch_loop import EpochLoop

PROJECT = "onnxgrad"


class Tracker(Callback):
    """Base of the trackers: numbers of every epoch, and of every `every_steps` steps.

    project, name: what the tracker calls the group of runs, and the run. settings: plain data to keep
        with it, such as the learning rate.
    """

    package = ""

    def __init__(
        self,
        project: str = PROJECT,
        name: str | None = None,
        settings: Mapping[str, Any] | None = None,
        every_steps: int = 50,
    ):
        if every_steps < 1:
            raise ValueError(f"every_steps is {every_steps!r}, expected at least 1")
        self.project, self.name, self.settings = project, name, dict(settings or {})
        self.every_steps, self.broken = every_steps, False
        try:
            self.library = importlib.import_module(self.package)
        except ImportError as error:
            raise ImportError(
                f"{type(self).__name__} needs {self.package}: pip install {self.package}"
            ) from error

    def begin(self) -> None:
        """Open a run."""

    def log(self, numbers: dict[str, float], step: int) -> None:
        """Send numbers."""

    def finish(self) -> None:
        """Close the run."""

    def on_fit_begin(self, loop: EpochLoop) -> None:
        self.broken = False
        try:
            self.begin()
        except Exception as error:  # of any class: each package has its own
            text = " ".join(str(error).split())
            raise ConfigError(f"{type(self).__name__} could not open a run: {text}") from error

    def on_step_end(self, loop: EpochLoop, logs: dict[str, float]) -> None:
        steps = loop.trainer.steps
        if "grad_norm" in logs and steps % self.every_steps == 0:
            self._send({f"step/{k}": v for k, v in logs.items()}, steps)

    def on_epoch_end(self, loop: EpochLoop, logs: dict[str, float]) -> None:
        self._send({k: v for k, v in logs.items() if k != "step"}, int(logs["step"]))

    def _send(self, numbers: dict[str, float], step: int) -> None:
        self._try(self.log, {k: float(v) for k, v in numbers.items() if math.isfinite(v)}, step)

    def _try(self, action: Callable[..., Any], *arguments: Any) -> None:
        """A tracker that cannot be reached any more is told nothing more; the training goes on."""
        if self.broken:
            return
        try:
            action(*arguments)
        except Exception as error:
            self.broken = True
            name = type(self).__name__
            warnings.warn(
                f"{name} gets no more numbers: {error}; the training goes on", stacklevel=2
            )

    def on_fit_end(self, loop: EpochLoop) -> None:
        self._try(self.finish)


class MLflow(Tracker):
    """Runs of MLflow; where they are kept is MLflow's to say (`MLFLOW_TRACKING_URI`)."""

    package = "mlflow"

    def begin(self) -> None:
        self.library.set_experiment(self.project)
        self.library.start_run(run_name=self.name)
        if self.settings:
            self.library.log_params(self.settings)

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.library.log_metrics(numbers, step=step)

    def finish(self) -> None:
        self.library.end_run()


class WandB(Tracker):
    """Runs of Weights & Biases; `WANDB_MODE=offline` keeps them here."""

    package = "wandb"

    def begin(self) -> None:
        self.run = self.library.init(project=self.project, name=self.name, config=self.settings)

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.run.log(numbers, step=step)

    def finish(self) -> None:
        self.run.finish()


class Trackio(Tracker):
    """Runs of Trackio, which are kept on this machine."""

    package = "trackio"

    def begin(self) -> None:
        self.library.init(project=self.project, name=self.name, config=self.settings)

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.library.log(numbers, step=step)

    def finish(self) -> None:
        self.library.finish()


TRACKERS: dict[str, type[Callback]] = {
    "mlflow": MLflow, "wandb": WandB, "trackio": Trackio, "tensorboard": TensorBoard,
}  # fmt: skip
PACKAGES = {
    "mlflow": "mlflow",
    "wandb": "wandb",
    "trackio": "trackio",
    "tensorboard": "tensorboardX",
}


def check(names: Iterable[str]) -> None:
    """Raise ConfigError for a name that is not a tracker's, and for a package that is not installed."""
    for each in names:
        if each not in TRACKERS:
            raise ConfigError(f"--report-to is {each!r}, expected some of {', '.join(TRACKERS)}")
        package = PACKAGES[each]
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"--report-to {each} needs {package}: pip install {package}")


def named(
    names: Iterable[str], folder: str | os.PathLike[str], name: str, settings: Mapping[str, Any]
) -> list[Callback]:
    """The trackers of `--report-to`; TensorBoard writes into `folder`."""
    check(names)
    return [
        TensorBoard(folder)
        if each == "tensorboard"
        else TRACKERS[each](name=name, settings=settings)
        for each in names
    ]
