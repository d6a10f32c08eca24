"""What a person sees during training: a live line on a terminal, one plain line per epoch elsewhere."""

from __future__ import annotations

import json
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from onnxgrad.train.callbacks import Callback


class Screen(Callback):
    """`mode` is "live", "plain", "json" or "quiet"."""

    def __init__(self, console: Console, mode: str):
        self.console, self.mode = console, mode
        self.bar: Progress | None = None
        self.rows = self.mean = 0.0

    def on_fit_begin(self, loop) -> None:
        self.began = self.clock = time.monotonic()
        if self.mode == "live":
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[text]}"),
            )
            self.bar = Progress(
                *columns, TimeRemainingColumn(), console=self.console, transient=True
            )
            self.task = self.bar.add_task(
                "starting", total=loop.total_steps, completed=loop.trainer.steps, text=""
            )
            self.bar.start()

    def on_step_end(self, loop, logs) -> None:
        self.mean = logs["loss"] if not self.mean else 0.95 * self.mean + 0.05 * logs["loss"]
        if self.bar:
            text = f"loss {self.mean:.4f}"
            epoch = f"epoch {loop.progress.epoch + 1}/{loop.epochs}"
            self.bar.update(self.task, description=epoch, completed=loop.trainer.steps, text=text)

    def on_epoch_end(self, loop, logs) -> None:
        spent, self.clock = time.monotonic() - self.clock, time.monotonic()
        rows = getattr(loop.data, "rows", 0)
        if self.mode == "json":
            print(json.dumps({"event": "epoch", **logs}), flush=True)
        if self.mode in ("live", "plain"):
            numbers = "  ".join(
                f"{k} {v:.4g}" for k, v in logs.items() if k not in ("epoch", "step", "lr")
            )
            rate = f"  {rows / spent:,.0f} rows/s" if rows and spent > 0 else ""
            target = self.bar.console if self.bar else self.console
            target.print(
                f"epoch {loop.progress.epoch}/{loop.epochs}  {numbers}{rate}", highlight=False
            )

    def on_fit_end(self, loop) -> None:
        if self.bar:
            self.bar.stop()
            self.bar = None
