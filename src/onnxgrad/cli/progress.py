"""What a person, or a program, sees of `onnxgrad train`: a live line, lines, JSON, or nothing."""

from __future__ import annotations

from onnxgrad.cli.texts import Console, say_json
from onnxgrad.train.callbacks import Callback
from onnxgrad.train.show import Lines, TerminalBar


class JsonLines(Callback):
    """One object per epoch."""

    def on_epoch_end(self, loop, logs) -> None:
        say_json("epoch", **logs)


def screen(console: Console, mode: str) -> Callback:
    """The callback for "live", "plain", "json" or "quiet"."""
    if mode == "live":
        return TerminalBar(console)
    if mode == "plain":
        return Lines(lambda text: console.print(text, highlight=False, markup=False), console.width)
    return JsonLines() if mode == "json" else Callback()
