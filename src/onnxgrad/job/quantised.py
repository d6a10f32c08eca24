"""Quantisation-aware training as a job: calibrate on the training rows, train, and compare three models."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from onnxgrad.data.batches import Batches
from onnxgrad.files.models import data_files

REPEATS = 15  # runs of which the median is taken


@dataclass
class Version:
    """One row of the comparison; an empty size or latency belongs to a model that is not a file."""

    name: str
    scores: Mapping[str, float]
    bytes: int | None = None
    milliseconds: float | None = None


@dataclass
class Comparison:
    """The float model, the integer model before training, and after it."""

    versions: list[Version] = field(default_factory=list)

    def rows(self) -> list[list[str]]:
        """Return the table as texts, with a head."""
        names = list(self.versions[0].scores)
        head = ["", *names, "size", "time of a batch"]
        return [head, *([v.name, *self._scores(v, names), *_cost(v)] for v in self.versions)]

    @staticmethod
    def _scores(version: Version, names: list[str]) -> list[str]:
        return [f"{version.scores[n]:.4f}" if n in version.scores else "" for n in names]


def _cost(version: Version) -> list[str]:
    size = "" if version.bytes is None else f"{version.bytes / 1024:,.0f} KiB"
    speed = "" if version.milliseconds is None else f"{version.milliseconds:.2f} ms"
    return [size, speed]


def calibration(batches: Batches, names: tuple[str, ...], rows: int) -> Iterator[dict]:
    """Yield the inputs of training batches, in the order of the file, until there are `rows`."""
    for batch in batches.in_order():
        arrays = {n: batch.arrays[n] for n in names}
        yield arrays
        rows -= len(next(iter(arrays.values())))
        if rows <= 0:
            return


def measured(name: str, path: str, scores: Mapping[str, float], feeds: dict) -> Version:
    """Return a row for a model file: its size, and the median time of a batch in a plain session."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    known = {i.name for i in session.get_inputs()}
    feeds = {n: np.ascontiguousarray(a) for n, a in feeds.items() if n in known}
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        session.run(None, feeds)
        seconds.append(time.perf_counter() - began)
    size = sum(p.stat().st_size for p in (Path(path), *data_files(path)))
    return Version(name, scores, size, 1000 * float(np.median(seconds)))
