"""What a run was and became: numbers while it runs, and the parts of its report after it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onnxgrad.data.arrays import Batch
from onnxgrad.data.batches import Batches
from onnxgrad.job.config import Config
from onnxgrad.job.judging import Judged
from onnxgrad.job.quantised import Comparison
from onnxgrad.notes import Note
from onnxgrad.train.callbacks import Callback
from onnxgrad.train.trainer import Trainer


@dataclass
class Result:
    """What a run was and became; the report is made of it."""

    config: Config
    model: str
    folder: Path
    notes: list[Note]
    before: dict[str, float]
    after: dict[str, float] = field(default_factory=dict)
    epochs: list[dict[str, float]] = field(default_factory=list)
    steps: list[dict[str, float]] = field(default_factory=list)
    parameters: list[dict[str, Any]] = field(default_factory=list)
    judged: Judged | None = None
    timing: dict[str, float] = field(default_factory=dict)  # seconds by part
    trained_steps: int = 0
    seconds: float = 0.0
    stop: str = ""
    comparison: Comparison | None = None
    trials: dict[str, Any] = field(default_factory=dict)  # score -> its spread over folds and seeds


class Recorder(Callback):
    """Keeps the loss of every step, thinned out so that a long run stays small; goes on after a resume."""

    def __init__(self, result: Result, on_begin: Callable[[], None]):
        self.result, self.stride, self.on_begin = result, 1, on_begin
        self.earlier, self.began = 0.0, time.monotonic()

    def on_fit_begin(self, loop) -> None:
        self.on_begin()  # a checkpoint was accepted by now: the settings of a resumed run may be replaced

    def seconds(self) -> float:
        """Of training, those before an interruption included."""
        return self.earlier + time.monotonic() - self.began

    def on_step_end(self, loop, logs) -> None:
        if loop.trainer.steps % self.stride == 0:
            keys = ("loss", "lr", "grad_norm")
            self.result.steps.append(
                {"step": loop.trainer.steps, **{k: logs[k] for k in keys if k in logs}}
            )
        if len(self.result.steps) > 2000:
            self.result.steps, self.stride = self.result.steps[::2], self.stride * 2

    def state(self) -> dict[str, Any]:
        return {"steps": self.result.steps, "stride": self.stride, "seconds": self.seconds()}

    def load_state(self, state, tensors) -> None:
        self.result.steps, self.stride = list(state["steps"]), state["stride"]
        self.earlier = state["seconds"]


class Watched:
    """Batches that pass by, with the first row of each input that holds infinity written down."""

    def __init__(self, batches: Batches, endless: dict[str, str]):
        self.batches, self.endless = batches, endless

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches as the rows lie, from number `start` on."""
        for batch in itertools.islice(self.batches.in_order(), start, None):
            for name in self.batches.matched.inputs:
                array = batch.arrays[name]
                if array.dtype.kind == "f" and name not in self.endless and np.isinf(array).any():
                    row = int(np.argwhere(np.isinf(array))[0][0])
                    self.endless[name] = batch.where(row)
            yield batch


def describe(
    result: Result, trainer: Trainer, held: Batches, started_from: dict[str, np.ndarray]
) -> None:
    """Add the time by part and what became of every parameter."""
    result.timing = dict(trainer.clock.seconds)
    norms = trainer.gradient_norms()
    for name, array in trainer.get_weights().items():
        wide = array.astype(np.float64)
        change = float(np.linalg.norm(wide - started_from[name]))
        row = {"name": name, "shape": list(array.shape), "norm": float(np.linalg.norm(wide))}
        result.parameters.append({**row, "change": change, "gradient": norms.get(name)})
