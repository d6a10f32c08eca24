"""History: what `fit` returns."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from onnxgrad.charts import Picture, curves


@dataclass
class History:
    """What happened: one dict of numbers per epoch, and why it ended."""

    epochs: list[dict[str, float]] = field(default_factory=list)
    stopped: str = ""  # "", or why the run ended early
    seconds: float = 0.0

    def __getitem__(self, key: str) -> list[float]:
        """Return one column, as `history["val_loss"]`."""
        return [logs[key] for logs in self.epochs if key in logs]

    @property
    def history(self) -> dict[str, list[float]]:
        """The columns by name, as Keras has them."""
        keys = dict.fromkeys(k for logs in self.epochs for k in logs)
        return {k: self[k] for k in keys}

    def plot(self, path: str | os.PathLike[str] | None = None) -> Picture:
        """Return the curves of losses, metrics and learning rate as a picture, and write it where `path` says.

        A notebook shows what is returned; a file is SVG, which every browser shows.
        """
        picture = Picture(curves(self.epochs))
        if path is not None:
            picture.save(path)
        return picture
