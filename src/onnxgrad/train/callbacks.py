"""Callbacks of `fit`: each may look at the loop after every step and epoch, and stop it."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxgrad.files.write import write_bytes
from onnxgrad.train.files import checkpoint

if TYPE_CHECKING:
    from onnxgrad.train.loop.epoch_loop import EpochLoop


class Callback:
    """Base of the callbacks; override what you need.

    `loop.trainer` is the Trainer, `loop.progress` says where the run stands, and `loop.end("a reason")`
    ends it. `state` and `tensors` are saved with a checkpoint, and given back on resume.
    """

    order = 0  # those with a larger number come later

    def on_fit_begin(self, loop: EpochLoop) -> None:
        """Called before the first step."""

    def on_epoch_begin(self, loop: EpochLoop) -> None:
        """Called before the first step of an epoch."""

    def on_step_end(self, loop: EpochLoop, logs: dict[str, float]) -> None:
        """Called after every batch, with its loss, lr and grad_norm."""

    def on_epoch_end(self, loop: EpochLoop, logs: dict[str, float]) -> None:
        """Called after an epoch and its validation, with the epoch's numbers."""

    def on_interrupt(self, loop: EpochLoop) -> None:
        """Called when a run ends amid an epoch: after Ctrl-C (`fit` then raises KeyboardInterrupt) or a limit."""

    def on_fit_end(self, loop: EpochLoop) -> None:
        """Called at the end, also after an error."""

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must keep, as plain data."""
        return {}

    def tensors(self) -> dict[str, np.ndarray]:
        """Return arrays that a checkpoint must keep."""
        return {}

    def load_state(self, state: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        """Continue from what `state` and `tensors` returned."""


class Best:
    """Follows one number: `better` says whether it is the best so far, and remembers it."""

    def __init__(self, monitor: str, mode: str = "auto", min_delta: float = 0.0):
        if mode not in ("auto", "min", "max"):
            raise ValueError(f"mode is {mode!r}, expected auto, min or max")
        self.monitor, self.min_delta = monitor, abs(min_delta)
        self.mode, self.value = mode, None

    def better(self, loop: EpochLoop, logs: dict[str, float]) -> bool:
        if self.monitor not in logs:
            known = ", ".join(logs)
            raise ValueError(f"monitor is {self.monitor!r}, and an epoch has {known}")
        value = logs[self.monitor]
        if math.isnan(value):
            return False
        if self.value is not None:
            gain = value - self.value if self._larger(loop) else self.value - value
            if not gain > self.min_delta:
                return False
        self.value = value
        return True

    def continue_from(self, value: float | None) -> None:
        """Take up the best value of an earlier run."""
        self.value = value

    def _larger(self, loop: EpochLoop) -> bool:
        if self.mode != "auto":
            return self.mode == "max"
        name = self.monitor.removeprefix("val_")
        return any(m.name == name and m.larger for m in loop.trainer.metrics)


class EarlyStopping(Callback):
    """Stop when a number has not improved for `patience` epochs; go back to the best weights.

    `mode="auto"` knows which direction is better for losses and onnxgrad's metrics.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        patience: int = 3,
        min_delta: float = 0.0,
        mode: str = "auto",
        restore_best: bool = True,
    ):
        self.best = Best(monitor, mode, min_delta)
        self.patience, self.restore_best = patience, restore_best
        self.bad, self._weights = 0, {}

    def on_epoch_end(self, loop: EpochLoop, logs: dict[str, float]) -> None:
        if self.best.better(loop, logs):
            self.bad = 0
            if self.restore_best:
                self._weights = loop.trainer.get_weights()
            return
        self.bad += 1
        if self.bad >= self.patience:
            loop.end(f"{self.best.monitor} did not improve for {self.patience} epochs")

    def on_fit_end(self, loop: EpochLoop) -> None:
        if self.restore_best and self._weights:
            loop.trainer.set_weights(self._weights)

    def state(self) -> dict[str, Any]:
        return {"best": self.best.value, "bad": self.bad}

    def tensors(self) -> dict[str, np.ndarray]:
        return dict(self._weights)

    def load_state(self, state: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        self.best.continue_from(state["best"])
        self.bad, self._weights = state["bad"], dict(tensors)


class Checkpoint(Callback):
    """Save checkpoints `step-00000120` in `folder`, after epochs or every so many steps.

    `save_total_limit` keeps the newest ones of this run only; those of other runs in the folder stay.
    With `monitor`, the best epoch is also saved as `best`. They are written whole or not at all;
    `fit(resume=folder)` continues from the newest. Ctrl-C saves one, too. `last` is the path of the
    newest. Epochs that end less than `least_seconds` after the last save are passed over, except the
    final one; epochs that take longer than `every_seconds` are saved that often.
    """

    order = 100  # after those whose state it saves

    def __init__(
        self,
        folder: str | os.PathLike[str],
        every_steps: int | None = None,
        save_total_limit: int | None = 3,
        monitor: str | None = None,
        mode: str = "auto",
        least_seconds: float = 0.0,
        every_seconds: float | None = None,
    ):
        if save_total_limit is not None and save_total_limit < 1:
            raise ValueError(f"save_total_limit is {save_total_limit}, expected at least 1")
        self.folder, self.every_steps = Path(folder), every_steps
        self.save_total_limit = save_total_limit
        self.best = Best(monitor, mode) if monitor else None
        self.last: Path | None = None
        self._saved: list[str] = []  # names of checkpoints of this run, the oldest first
        self.least_seconds, self.every_seconds = least_seconds, every_seconds
        self._saved_at = -math.inf

    def on_fit_begin(self, loop: EpochLoop) -> None:
        self._begun = time.monotonic()
        if loop.writes:
            checkpoint.remove_unfinished(self.folder)

    def on_step_end(self, loop: EpochLoop, logs: dict[str, float]) -> None:
        # Only where gradients were applied: a checkpoint holds no half-summed ones.
        step = loop.trainer.steps
        if "grad_norm" not in logs:
            return
        late = (
            self.every_seconds
            and time.monotonic() - max(self._saved_at, self._begun) >= self.every_seconds
        )
        if late or (self.every_steps and step % self.every_steps == 0):
            self.save(loop)

    def on_epoch_end(self, loop: EpochLoop, logs: dict[str, float]) -> None:
        improved = self.best is not None and self.best.better(loop, logs)
        ends = bool(loop.stop) or loop.progress.epoch >= loop.epochs
        if ends or time.monotonic() - self._saved_at >= self.least_seconds:
            self.save(loop)
        if improved:
            self._save(loop, self.folder / "best")

    def on_interrupt(self, loop: EpochLoop) -> None:
        self.save(loop)

    def save(self, loop: EpochLoop) -> Path:
        """Save where the run stands now; of several processes the first one does."""
        path = self.folder / checkpoint.name_of(loop.trainer.steps)
        if not loop.writes:
            self.last = path
            return path
        before = self._saved
        self._saved = [*(name for name in before if name != path.name), path.name]
        try:
            self._save(loop, path)
        except BaseException:
            self._saved = before
            raise
        self.last, self._saved_at = path, time.monotonic()
        if self.save_total_limit is not None:
            for name in self._saved[: -self.save_total_limit]:
                checkpoint.remove(self.folder / name)
            self._saved = self._saved[-self.save_total_limit :]
        return path

    def _save(self, loop: EpochLoop, path: Path) -> None:
        if not loop.writes:
            return
        best = None if self.best is None else {self.best.monitor: self.best.value}
        checkpoint.save(dataclasses.replace(loop.state(), extra={"best": best}), path)

    def state(self) -> dict[str, Any]:
        best = None if self.best is None else self.best.value
        return {"best": best, "saved": self._saved}

    def load_state(self, state: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        if self.best is not None:
            self.best.continue_from(state["best"])
        saved = state.get("saved")  # absent in older ones
        listed = saved if isinstance(saved, list) else []
        self._saved = [name for name in listed if checkpoint.is_name(name)]


class _Log(Callback):
    """Writes a line per epoch. A resumed run continues the file after the epochs it keeps."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    def on_fit_begin(self, loop: EpochLoop) -> None:
        if loop.writes:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.rewrite(loop.progress.epochs)

    def rewrite(self, epochs: Iterable[dict[str, float]]) -> None:
        """Write every epoch anew, under another name first."""
        write_bytes(self.path, self.text(list(epochs)).encode())

    def text(self, epochs: list[dict[str, float]]) -> str:
        """Return the whole file."""
        raise NotImplementedError

    def on_epoch_end(self, loop: EpochLoop, logs: dict[str, float]) -> None:
        if loop.writes:
            self.rewrite(loop.progress.epochs)


class CSVLogger(_Log):
    """One row per epoch in a CSV file."""

    def text(self, epochs: list[dict[str, float]]) -> str:
        columns = list(dict.fromkeys(k for logs in epochs for k in logs))
        file = io.StringIO()
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if columns:
            writer.writeheader()
            writer.writerows(epochs)
        return file.getvalue()


class JSONLLogger(_Log):
    """One JSON object per epoch and line."""

    def text(self, epochs: list[dict[str, float]]) -> str:
        return "".join(json.dumps(logs) + "\n" for logs in epochs)


class TensorBoard(Callback):
    """Scalars for TensorBoard; needs the package tensorboardX (`pip install 'onnxgrad[tensorboard]'`)."""

    def __init__(self, folder: str | os.PathLike[str]):
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "TensorBoard needs tensorboardX: pip install 'onnxgrad[tensorboard]'"
            ) from error
        self._writer = SummaryWriter(str(folder))

    def on_step_end(self, loop: EpochLoop, logs: dict[str, float]) -> None:
        for name, value in logs.items() if loop.writes else ():
            self._writer.add_scalar(f"step/{name}", value, loop.trainer.steps)

    def on_epoch_end(self, loop: EpochLoop, logs: dict[str, float]) -> None:
        for name, value in logs.items() if loop.writes else ():
            self._writer.add_scalar(f"epoch/{name}", value, logs["step"])

    def on_fit_end(self, loop: EpochLoop) -> None:
        self._writer.flush()
