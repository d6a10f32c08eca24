"""Several runs on one page: which was best, what differed, and their curves one over the other."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from onnxgrad.charts import Chart, curves
from onnxgrad.data.table import is_number
from onnxgrad.errors import ConfigError, OnnxGradError
from onnxgrad.files.text import read_json, read_text
from onnxgrad.job.config import FIELDS
from onnxgrad.job.folder import saved_arguments
from onnxgrad.job.html import document, section, table
from onnxgrad.job.report import RESULT, charts
from onnxgrad.texts import grouped
from onnxgrad.train import metrics

# Where a run writes says nothing about why it is better.
PLACES = ("data", "output", "run_dir", "report_to")


@dataclass
class Run:
    """A run folder as it can be compared."""

    folder: Path
    settings: dict[str, Any]
    epochs: list[dict[str, float]] = field(default_factory=list)
    after: dict[str, float] = field(default_factory=dict)
    seconds: float = math.nan

    @property
    def name(self) -> str:
        return self.folder.name or str(self.folder)


def read_runs(paths: Sequence[str | os.PathLike[str]]) -> tuple[list[Run], list[str]]:
    """The runs among the paths, and why the others are not runs. Raises ConfigError where there is none at all."""
    runs, refused = [], []
    for path in map(Path, paths):
        try:
            runs.append(_read(path))
        except (OnnxGradError, OSError, ValueError) as error:
            refused.append(str(error).removeprefix("--resume "))
    if not runs:
        raise ConfigError("; ".join(refused) or "no run folders: name some, such as runs/*")
    return runs, refused


def _read(folder: Path) -> Run:
    settings = saved_arguments(folder)
    run = Run(folder, settings)
    if (folder / "results.csv").exists():
        rows = csv.DictReader(io.StringIO(read_text(folder / "results.csv")))
        run.epochs = [
            {k: float(v) for k, v in row.items() if k and isinstance(v, str) and is_number(v)}
            for row in rows
        ]
        run.epochs = [epoch for epoch in run.epochs if "epoch" in epoch]
    if (folder / RESULT).exists():
        found = read_json(folder / RESULT)
        after = found.get("after") if isinstance(found, dict) else None
        if not isinstance(after, dict):
            raise ValueError(f"{folder / RESULT} is damaged: it has no scores")
        run.after = {str(k): float(v) for k, v in after.items() if isinstance(v, (int, float))}
        seconds = found.get("seconds")
        run.seconds = float(seconds) if isinstance(seconds, (int, float)) else math.nan
    elif run.epochs:  # a run that goes on, or was interrupted
        last = run.epochs[-1]
        run.after = {k.removeprefix("val_"): v for k, v in last.items() if k.startswith("val_")}
    return run


def page(runs: Sequence[Run], beside: Path) -> str:
    """The page; links to the runs' own reports are from the folder `beside`."""
    parts = [
        f"<p class='dim'>{len(runs)} runs</p>",
        section("Scores", _scores(runs, beside)),
        section("What differs", _differences(runs)),
        section("Curves", charts(overlaid(runs))),
    ]
    return document("Runs beside each other", parts)


def scores(runs: Sequence[Run]) -> tuple[list[str], list[list[float]]]:
    """The names of all scores, and each run's; NaN where it has none."""
    names = list(dict.fromkeys(name for run in runs for name in run.after))
    return names, [[run.after.get(name, math.nan) for name in names] for run in runs]


def best(name: str, values: Sequence[float]) -> float:
    """The best of a score's values: losses and errors are better when they are smaller."""
    known = [v for v in values if math.isfinite(v)]
    if not known:
        return math.nan
    return max(known) if _larger(name) else min(known)


def _larger(name: str) -> bool:
    try:
        return metrics.resolve(name)[0].larger
    except (ValueError, IndexError):
        return False


def _scores(runs: Sequence[Run], beside: Path) -> str:
    names, values = scores(runs)
    rows = []
    for run, mine in zip(runs, values, strict=True):
        cells = [_linked(run, beside), escape(Path(str(run.settings.get("model") or "")).name)]
        for place, (name, value) in enumerate(zip(names, mine, strict=True)):
            top = best(name, [row[place] for row in values])
            text = "" if math.isnan(value) else grouped(value, 4)
            cells.append(
                f"<span class=best>{text}</span>" if value == top and len(runs) > 1 else text
            )
        cells += [str(len(run.epochs)), "" if math.isnan(run.seconds) else f"{run.seconds:.1f}"]
        rows.append(cells)
    head = ["run", "model", *names, "epochs", "s"]
    return table(head, rows, set(range(2, len(head))))


def _linked(run: Run, beside: Path) -> str:
    report = run.folder / "report.html"
    if not report.exists():
        return escape(run.name)
    address = quote(os.path.relpath(report, beside).replace(os.sep, "/"))
    return f"<a href='./{escape(address)}'>{escape(run.name)}</a>"


def _differences(runs: Sequence[Run]) -> str:
    """The settings that are not the same in all runs."""
    values = {n: [str(r.settings.get(n, f.default)) for r in runs] for n, f in FIELDS.items()}
    values = {n: v for n, v in values.items() if n not in PLACES and len(set(v)) > 1}
    if not values:
        return (
            "<p class='dim'>None: the runs were trained with the same settings.</p>"
            if len(runs) > 1
            else ""
        )
    rows = [
        [escape(run.name), *(escape(v[i]) for v in values.values())] for i, run in enumerate(runs)
    ]
    return table(["run", *values], rows, set())


def overlaid(runs: Sequence[Run]) -> list[Chart]:
    """One chart for every number of the epochs, with a line for each run; validation before training."""
    found: dict[str, dict[str, list]] = {}
    for run in runs:
        for chart in curves(run.epochs):
            for key, line in chart.lines.items():
                found.setdefault(key, {})[run.name] = line
    order = sorted(found, key=lambda key: (key == "lr", not key.startswith("val_"), key))
    return [Chart(f"{key} by epoch", found[key]) for key in order]
