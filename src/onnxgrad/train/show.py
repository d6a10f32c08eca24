"""What a person sees of `fit`: a bar on a terminal and in a notebook, a line per epoch everywhere else."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from onnxgrad.texts import short
from onnxgrad.train.callbacks import Callback

if TYPE_CHECKING:
    from onnxgrad.train.loop.epoch_loop import EpochLoop

SMOOTHING = 0.95  # of the loss and the speed beside a bar
WIDTH = 100  # of a line where nothing says how wide the page is
REDRAW_SECONDS = 0.1  # in a notebook: every redrawing is a message to the browser


class Lines(Callback):
    """One line per epoch, written by `write`; the base of the bars."""

    def __init__(self, write: Callable[[str], Any] = print, width: int = WIDTH):
        self.write, self.width = write, width
        self.loss = self.pace = math.nan  # smoothed; the pace in seconds per step
        self.metric = ""

    def on_fit_begin(self, loop: EpochLoop) -> None:
        self.began = self.tick = time.monotonic()
        self.loss = self.pace = math.nan

    def on_epoch_begin(self, loop: EpochLoop) -> None:
        self.began = self.tick = time.monotonic()

    def on_step_end(self, loop: EpochLoop, logs: dict[str, float]) -> None:
        now = time.monotonic()
        self.pace, self.tick = smoothed(self.pace, now - self.tick), now
        self.loss = smoothed(self.loss, logs["loss"])

    def on_epoch_end(self, loop: EpochLoop, logs: dict[str, float]) -> None:
        spent = max(self.tick - self.began, 1e-9)  # without validation and checkpoints
        self.write(self.line(loop, logs, getattr(loop.data, "rows", 0) / spent))
        metrics = [k for k in logs if k.startswith("val_") and k != "val_loss"]
        if metrics:
            self.metric = f"  {metrics[0].removeprefix('val_')} {logs[metrics[0]]:.3g}"

    def line(self, loop: EpochLoop, logs: dict[str, float], speed: float) -> str:
        """The numbers of an epoch, as many as fit; the history has them all."""
        line = f"epoch {loop.progress.epoch:>{len(str(loop.epochs))}}/{loop.epochs}"
        shown = [
            f"  {k} {short(v):<7}" for k, v in logs.items() if k not in ("epoch", "step", "lr")
        ]
        for text in (*shown, f"  {speed:,.0f} rows/s" if speed else ""):
            if len((line + text).rstrip()) <= self.width:
                line += text
        return line.rstrip()

    def now(self, loop: EpochLoop) -> tuple[str, str]:
        """Which epoch it is, and the numbers of this moment."""
        speed = loop.batch_size / max(self.pace, 1e-9)
        text = f"loss {self.loss:.4g}{self.metric}  {speed:,.0f} rows/s"
        return f"epoch {loop.progress.epoch + 1}/{loop.epochs}", text


class TerminalBar(Lines):
    """A live line under the lines of the epochs, by rich."""

    def __init__(self, console: Any = None):
        from rich.console import Console

        self.console = console or Console(highlight=False)
        super().__init__(self._print, self.console.width)
        self._bar: Any = None

    def _print(self, text: str) -> None:
        (self._bar or self).console.print(text, highlight=False, markup=False)

    def on_fit_begin(self, loop: EpochLoop) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        super().on_fit_begin(loop)
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=14),
            TextColumn("{task.fields[text]}"), TimeRemainingColumn(compact=True),
            console=self.console, transient=True,
        )  # fmt: skip
        done = loop.trainer.steps
        self._task = self._bar.add_task("starting", total=loop.total_steps, completed=done, text="")
        self._bar.start()

    def on_step_end(self, loop: EpochLoop, logs: dict[str, float]) -> None:
        super().on_step_end(loop, logs)
        epoch, text = self.now(loop)
        self._bar.update(self._task, description=epoch, completed=loop.trainer.steps, text=text)

    def on_fit_end(self, loop: EpochLoop) -> None:
        if self._bar:
            self._bar.stop()
            self._bar = None


class NotebookBar(Lines):
    """A bar that the browser draws, above the lines of the epochs; it needs no widgets, and stays in the file."""

    def __init__(self):
        super().__init__(self._add)
        self._lines: list[str] = []
        self._handle: Any = None
        self._drawn = -math.inf

    def _add(self, text: str) -> None:
        self._lines.append(text)

    def on_fit_begin(self, loop: EpochLoop) -> None:
        from IPython.display import HTML, display

        super().on_fit_begin(loop)
        self._html, self._lines = HTML, []
        self._handle = display(HTML(""), display_id=True)

    def on_step_end(self, loop: EpochLoop, logs: dict[str, float]) -> None:
        super().on_step_end(loop, logs)
        if time.monotonic() - self._drawn >= REDRAW_SECONDS:
            self._draw(loop, " ".join(self.now(loop)))

    def on_epoch_end(self, loop: EpochLoop, logs: dict[str, float]) -> None:
        super().on_epoch_end(loop, logs)
        self._draw(loop, "")

    def on_fit_end(self, loop: EpochLoop) -> None:
        self._draw(loop, loop.stop)

    def _draw(self, loop: EpochLoop, text: str) -> None:
        """The bar and the lines, in place of what was drawn before."""
        if self._handle is None:
            return
        self._drawn = time.monotonic()
        size = f" max='{loop.total_steps}' value='{loop.trainer.steps}'" if loop.total_steps else ""
        lines = escape("\n".join(self._lines))
        bar = f"<progress style='width:16em'{size}></progress> <code>{escape(text)}</code>"
        self._handle.update(self._html(f"<div>{bar}</div><pre>{lines}</pre>"))


def shown(verbose: int) -> list[Callback]:
    """The callbacks that `verbose` means: 0 none; 1 a bar on a terminal and in a notebook, else lines; 2 lines."""
    if verbose not in (0, 1, 2, False, True):
        raise ValueError(f"verbose is {verbose!r}, expected 0, 1 (a bar) or 2 (a line per epoch)")
    if not verbose:
        return []
    if verbose == 1 and in_notebook():
        return [NotebookBar()]
    if verbose == 1 and sys.stdout.isatty():
        return [TerminalBar()]
    return [Lines()]


def in_notebook() -> bool:
    """Whether a notebook runs this, and will show HTML."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


def smoothed(old: float, new: float) -> float:
    """A mean of the last ones, the newer the more they count."""
    return new if math.isnan(old) else SMOOTHING * old + (1 - SMOOTHING) * new
