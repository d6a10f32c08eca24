"""`report.html`: one self-contained file. No script, nothing from the network; text of the user is escaped."""

from __future__ import annotations

import math
import os
import platform
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import onnxgrad
from onnxgrad import _native
from onnxgrad.charts import STYLE as CHARTS
from onnxgrad.charts import Chart, curves
from onnxgrad.files.write import write_bytes
from onnxgrad.texts import grouped

if TYPE_CHECKING:
    from onnxgrad.job.outcome import Result

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1f2328;background:#fff}
h1{font-size:1.5rem;margin-bottom:0}
h2{font-size:1.1rem;margin-top:2rem;border-bottom:1px solid #d1d9e0;padding-bottom:.2rem}
table{border-collapse:collapse}td,th{padding:.15rem .8rem .15rem 0;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.dim{color:#59636e}.grid{stroke:#d1d9e0}
.charts{display:flex;flex-wrap:wrap;gap:1.5rem}svg text{font:11px system-ui,sans-serif;fill:#59636e}
.bar{height:.7rem;margin-top:.45rem;background:#2a78d6;border-radius:2px}
.matrix td{width:2.2rem;height:1.8rem;text-align:center;vertical-align:middle;padding:0}
@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}h2{border-color:#30363d}.grid{stroke:#30363d}
.dim,svg text{color:#9198a1;fill:#9198a1}}
"""


def write_report(result: Result, path: Path) -> None:
    write_bytes(path, page(result).encode(errors="replace"))  # a file name may be no text


def page(result: Result) -> str:
    title = f"{Path(result.model).name} → {Path(result.config.output).name}"
    parts = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title>",
        f"<style>{STYLE}{CHARTS}</style>",
        f"<h1>{escape(title)}</h1>",
        f"<p class='dim'>{len(result.epochs)} epochs in {result.seconds:.1f} s"
        f"{'; stopped: ' + escape(result.stop) if result.stop else ''}</p>",
        "<h2>Before and after</h2>", _before_after(result),
        "<h2>Curves</h2>", _curves(result),
    ]  # fmt: skip
    if result.trials:
        parts += ["<h2>Folds and seeds</h2>", _trials(result)]
    if result.comparison is not None:
        head, *rows = result.comparison.rows()
        numbers = set(range(1, len(head)))
        parts += ["<h2>Float and integers</h2>", _table(head, rows, numbers)]
    if result.confusion is not None:
        parts += ["<h2>Confusion matrix</h2>", _confusion(result)]
    parts += ["<h2>Parameters</h2>", _parameters(result)]
    if result.notes:
        parts += [
            "<h2>Decisions</h2><ul>",
            *(f"<li>{escape(str(n))}</li>" for n in result.notes),
            "</ul>",
        ]
    parts += ["<h2>Time by part</h2>", _timing(result)]
    parts += ["<h2>Settings</h2>", _settings(result)]
    parts += ["<h2>Environment</h2>", _environment(result)]
    return "\n".join(parts) + "</html>\n"


def _table(head: list[str], rows: list[list[str]], numbers: set[int]) -> str:
    def cell(tag: str, index: int, text: str) -> str:
        return f"<{tag}{' class=n' if index in numbers else ''}>{text}</{tag}>"

    lines = (
        ["<tr>" + "".join(cell("th", i, escape(h)) for i, h in enumerate(head)) + "</tr>"]
        if head
        else []
    )
    lines += [
        "<tr>" + "".join(cell("td", i, t) for i, t in enumerate(row)) + "</tr>" for row in rows
    ]
    return "<table>" + "".join(lines) + "</table>"


def _before_after(result: Result) -> str:
    rows = [
        [escape(k), grouped(v, 4), grouped(result.after.get(k, math.nan), 4)]
        for k, v in result.before.items()
    ]
    return _table(["", "before", "after"], rows, {1, 2})


def _trials(result: Result) -> str:
    """Each score's mean and spread, and the single ones."""
    rows = [
        [escape(name), grouped(s.mean, 4), grouped(s.deviation), ", ".join(grouped(v, 4) for v in s.values)]
        for name, s in result.trials.items()
    ]  # fmt: skip
    return _table(["", "mean", "deviation", "single"], rows, {1, 2})


def _curves(result: Result) -> str:
    charts = [Chart("loss by step", {"loss": [(s["step"], s["loss"]) for s in result.steps]})]
    charts += [
        chart for chart in curves(result.epochs) if not chart.title.startswith("learning rate")
    ]
    for key, title in (("lr", "learning rate by step"), ("grad_norm", "gradient norm by step")):
        charts.append(Chart(title, {key: [(s["step"], s[key]) for s in result.steps if key in s]}))
    return "<div class='charts'>" + "".join(chart.svg() for chart in charts) + "</div>"


def _confusion(result: Result) -> str:
    matrix, names = result.confusion, result.classes
    largest = max(int(matrix.max()), 1)
    head = "<tr><td></td>" + "".join(f"<td class='dim'>{escape(n)}</td>" for n in names) + "</tr>"
    rows = []
    for i, name in enumerate(names):
        cells = "".join(_shaded(v, v / largest, i == j) for j, v in enumerate(matrix[i]))
        rows.append(f"<tr><td class='dim'>{escape(name)}</td>{cells}</tr>")
    note = "<p class='dim'>rows: the truth; columns: the prediction</p>"
    return f"{note}<table class='matrix'>{head}{''.join(rows)}</table>"


def _shaded(count: int, share: float, right: bool) -> str:
    """A cell, green on the diagonal and red off it, the darker the more there are."""
    colour = "42,157,92" if right else "209,73,91"
    depth = 0.15 + 0.6 * share if count else 0
    return f"<td style='background:rgba({colour},{depth:.2f})'>{count or ''}</td>"


def _parameters(result: Result) -> str:
    rows = [
        [escape(p["name"]), " × ".join(map(str, p["shape"])) or "scalar", grouped(p["norm"], 4), grouped(p["change"]),
         f"{p['change'] / p['norm']:.1%}" if p["norm"] else "",
         "" if p["gradient"] is None else grouped(p["gradient"])]
        for p in result.parameters
    ]  # fmt: skip
    head = ["name", "shape", "norm", "change", "", "last gradient"]
    return _table(head, rows, {2, 3, 4, 5})


def _timing(result: Result) -> str:
    """Seconds by part, each step's share of them, and a bar."""
    total = sum(result.timing.values()) or 1.0
    rows = []
    for part, seconds in sorted(result.timing.items(), key=lambda item: -item[1]):
        per_step = 1000 * seconds / max(result.trained_steps, 1)
        bar = f"<div class='bar' style='width:{12 * seconds / total:.2f}rem'></div>"
        share = f"{seconds / total:.0%}"
        rows.append([escape(part), f"{seconds:.2f}", f"{per_step:.3g}", share, bar])
    return _table(["", "s", "ms per step", "share", ""], rows, {1, 2, 3})


def _settings(result: Result) -> str:
    rows = [
        [escape(k), escape(str(v))] for k, v in vars(result.config).items() if v not in ("", None)
    ]
    return _table([], rows, set())


def _environment(result: Result) -> str:
    rows = [["onnxgrad", f"{onnxgrad.__version__} ({_native.instruction_set()})"]]
    rows += [[name, _version(name)] for name in ("onnxruntime", "onnx", "onnx-ir", "numpy")]
    rows += [
        ["Python", platform.python_version()],
        ["system", escape(platform.platform())],
        ["threads", f"{result.config.threads or 'all'} of {os.cpu_count()}"],
    ]
    return _table([], rows, set())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed as a package"
