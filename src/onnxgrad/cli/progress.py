"""What a person sees during training: a live line on a terminal, one plain line per epoch elsewhere."""

from __future__ import annotations

import math
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from onnxgrad.cli.texts import say_json, short
from onnxgrad.train.callbacks import Callback

SMOOTHING = 0.95  # of the loss and the speed of the live line


class Screen(Callback):
    """`mode` is "live", "plain", "json" or "quiet"."""

    def __init__(self, console: Console, mode: str):
        self.console, self.mode = console, mode
        self.bar: Progress | None = None
        self.loss = self.pace = math.nan  # smoothed; the pace in seconds per step
        self.metric = ""

    def on_fit_begin(self, loop) -> None:
        self.began = self.tick = time.monotonic()
        if self.mode == "live":
            self.bar = Progress(
                TextColumn("{task.description}"), BarColumn(bar_width=14),
                TextColumn("{task.fields[text]}"), TimeRemainingColumn(compact=True),
                console=self.console, transient=True,
            )  # fmt: skip
            done = loop.trainer.steps
            self.task = self.bar.add_task(
                "starting", total=loop.total_steps, completed=done, text=""
            )
            self.bar.start()

    def on_epoch_begin(self, loop) -> None:
        self.began = self.tick = time.monotonic()

    def on_step_end(self, loop, logs) -> None:
        now = time.monotonic()
        self.pace, self.tick = smoothed(self.pace, now - self.tick), now
        self.loss = smoothed(self.loss, logs["loss"])
        if self.bar:
            speed = loop.batch_size / max(self.pace, 1e-9)
            text = f"loss {self.loss:.4g}{self.metric}  {speed:,.0f} rows/s"
            epoch = f"epoch {loop.progress.epoch + 1}/{loop.epochs}"
            self.bar.update(self.task, description=epoch, completed=loop.trainer.steps, text=text)

    def on_epoch_end(self, loop, logs) -> None:
        if self.mode == "json":
            say_json("epoch", **logs)
        if self.mode in ("live", "plain"):
            spent = max(self.tick - self.began, 1e-9)  # without validation and checkpoints
            self._print_epoch(loop, logs, getattr(loop.data, "rows", 0) / spent)
        metrics = [k for k in logs if k.startswith("val_") and k != "val_loss"]
        if metrics:
            self.metric = f"  {metrics[0].removeprefix('val_')} {logs[metrics[0]]:.3g}"

    def _print_epoch(self, loop, logs: dict[str, float], speed: float) -> None:
        """One line, with as many numbers as fit; results.csv has them all."""
        console = self.bar.console if self.bar else self.console
        line = f"epoch {loop.progress.epoch:>{len(str(loop.epochs))}}/{loop.epochs}"
        shown = [
            f"  {k} {short(v):<7}" for k, v in logs.items() if k not in ("epoch", "step", "lr")
        ]
        for text in (*shown, f"  {speed:,.0f} rows/s" if speed else ""):
            if len((line + text).rstrip()) <= console.width:
                line += text
        console.print(line.rstrip(), highlight=False)

    def on_fit_end(self, loop) -> None:
        if self.bar:
            self.bar.stop()
            self.bar = None


def smoothed(old: float, new: float) -> float:
    return new if math.isnan(old) else SMOOTHING * old + (1 - SMOOTHING) * new
