"""`report.html`: one run, on one page to send around; and `result.json`, the same numbers for programs."""

from __future__ import annotations

import json
import math
import os
import platform
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import onnxgrad
from onnxgrad import _native
from onnxgrad.charts import Chart, curves
from onnxgrad.files.write import write_bytes
from onnxgrad.job.card import CARD, card
from onnxgrad.job.config import command
from onnxgrad.job.html import document, section, table, tiles
from onnxgrad.job.judging import Example, Judged
from onnxgrad.texts import grouped

if TYPE_CHECKING:
    from onnxgrad.job.outcome import Result

RESULT = "result.json"
LARGE_CELLS = 14  # classes of a confusion matrix that has room for its numbers


def write_report(result: Result, path: Path) -> None:
    """Write the page, the numbers beside it, and the model card."""
    write_bytes(path, page(result).encode(errors="replace"))  # a file name may not be text
    write_bytes(path.parent / RESULT, (json.dumps(numbers(result), indent=1) + "\n").encode())
    write_bytes(path.parent / CARD, card(result).encode(errors="replace"))


def numbers(result: Result) -> dict:
    """What other runs are compared with; null where a number is not finite."""

    def plain(scores: dict[str, float]) -> dict[str, float | None]:
        return {k: float(v) if math.isfinite(v) else None for k, v in scores.items()}

    return {
        "model": str(result.model), "output": result.config.output,
        "before": plain(result.before), "after": plain(result.after),
        "epochs": len(result.epochs), "steps": result.trained_steps, "seconds": round(result.seconds, 3),
        "stopped": result.stop, "command": command(result.model, result.config),
    }  # fmt: skip


def page(result: Result) -> str:
    title = f"{Path(result.model).name} → {Path(result.config.output).name}"
    judged = result.judged or Judged()
    stopped = f"; stopped: {escape(result.stop)}" if result.stop else ""
    parts = [
        f"<p class='dim'>{len(result.epochs)} epochs in {result.seconds:.1f} s{stopped}</p>",
        _before_after(result),
        section("Folds and seeds", _trials(result)),
        section("Float and integers", _comparison(result)),
        section("Curves", _curves(result)),
        section("Confusion matrix", _confusion(judged)),
        section("Classes", _classes(judged)),
        section("Reliability", _reliability(judged)),
        section("Answers", _answers(judged)),
        section("Examples most wrong", _examples(judged)),
        section("Parameters", _parameters(result)),
        section("Decisions", _decisions(result)),
        section("Time by part", _timing(result)),
        section("Settings", _settings(result)),
        section("Environment", _environment(result)),
    ]  # fmt: skip
    return document(title, parts)


def _before_after(result: Result) -> str:
    after = result.after
    return tiles(
        (name, grouped(after.get(name, math.nan), 4), f"before: {grouped(value, 4)}")
        for name, value in result.before.items()
    )


def _trials(result: Result) -> str:
    """Each score's mean and spread, and the single ones."""
    rows = [
        [escape(name), grouped(s.mean, 4), grouped(s.deviation), ", ".join(grouped(v, 4) for v in s.values)]
        for name, s in result.trials.items()
    ]  # fmt: skip
    return table(["", "mean", "deviation", "single"], rows, {1, 2}) if rows else ""


def _comparison(result: Result) -> str:
    if result.comparison is None:
        return ""
    head, *rows = result.comparison.rows()
    return table(head, [[escape(cell) for cell in row] for row in rows], set(range(1, len(head))))


def charts(drawn: list[Chart]) -> str:
    """Charts side by side."""
    made = "".join(chart.svg() for chart in drawn)
    return f"<div class='charts'>{made}</div>" if made else ""


def _curves(result: Result) -> str:
    drawn = [Chart("loss by step", {"loss": [(s["step"], s["loss"]) for s in result.steps]})]
    drawn += [c for c in curves(result.epochs) if not c.title.startswith("learning rate")]
    for key, title in (("lr", "learning rate by step"), ("grad_norm", "gradient norm by step")):
        drawn.append(Chart(title, {key: [(s["step"], s[key]) for s in result.steps if key in s]}))
    return charts(drawn)


# ---- classes


def _confusion(judged: Judged) -> str:
    matrix, names = judged.confusion, judged.names
    if matrix is None:
        return ""
    totals = matrix.sum(1)
    small = " small" if len(names) > LARGE_CELLS else ""
    head = "".join(f"<th>{_name(n)}</th>" for n in names)
    rows = []
    for i, name in enumerate(names):
        cells = "".join(
            _shaded(int(v), v / max(int(totals[i]), 1), i == j, f"{name} taken for {names[j]}: {v}")
            for j, v in enumerate(matrix[i])
        )
        rows.append(f"<tr><th>{_name(name)}</th>{cells}</tr>")
    note = (
        "<p class='dim'>Rows: the truth. Columns: the answer. "
        "The stronger the colour, the larger the share of its row.</p>"
    )
    body = f"<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f"{note}<div class='wide'><table class='matrix{small}'>{body}</table></div>"


def _name(name: str) -> str:
    return f"<span title='{escape(name)}'>{escape(name)}</span>"


def _shaded(count: int, share: float, right: bool, text: str) -> str:
    """A cell, green on the diagonal and red off it, the darker the more there are."""
    if not count:
        return "<td></td>"
    colour = "var(--good)" if right else "var(--bad)"
    depth = 0.15 + 0.65 * share
    return f"<td style='background:rgba({colour},{depth:.2f})' title='{escape(text)}'>{count}</td>"


def _classes(judged: Judged) -> str:
    """Precision = right / answered so, recall = right / truly so, F1 = their harmonic mean."""
    if judged.confusion is None:
        return ""
    rows = []
    for i, name in enumerate(judged.names):
        right = int(judged.confusion[i, i])
        true, answered = int(judged.confusion[i].sum()), int(judged.confusion[:, i].sum())
        shares = [right / answered if answered else math.nan, right / true if true else math.nan,
                  2 * right / (true + answered) if true + answered else math.nan]  # fmt: skip
        cells = ["" if math.isnan(s) else f"{s:.3f}" for s in shares]
        rows.append([escape(name), *cells, f"{true:,}", f"{answered:,}"])
    made = table(["class", "precision", "recall", "F1", "rows", "answered"], rows, {1, 2, 3, 4, 5})
    return _folded(f"{len(rows)} classes", made) if len(rows) > 20 else made


def _folded(title: str, inside: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{inside}</details>"


def _reliability(judged: Judged) -> str:
    if not judged.bins:
        return ""
    line = [(sure, right) for sure, right, _ in judged.bins]
    chart = Chart("share right by confidence", {"model": line}, limits=(0.0, 1.0), diagonal=True)
    rows = [[f"{sure:.2f}", f"{right:.2f}", f"{count:,}"] for sure, right, count in judged.bins]
    text = (
        f"<p class='dim'>Expected calibration error {judged.calibration_error:.3f}: how far confidence and share "
        "right are apart, on average. Below the dashed line the model is surer than it should be.</p>"
    )
    made = table(["mean confidence", "share right", "rows"], rows, {0, 1, 2})
    return f"{text}<div class='charts'>{chart.svg()}{made}</div>"


def _answers(judged: Judged) -> str:
    """Of a regression: the answer over the truth."""
    if not judged.points:
        return ""
    values = [v for point in judged.points for v in point if math.isfinite(v)]
    limits = (min(values), max(values)) if values else None
    chart = Chart(
        "answer by truth", {"rows": judged.points}, limits=limits, diagonal=True, scatter=True
    )
    return f"<div class='charts'>{chart.svg()}</div>"


# ---- examples


def _examples(judged: Judged) -> str:
    if judged.confusion is not None and not judged.examples:
        return "<p class='dim'>None: every row was answered correctly.</p>"
    if not judged.examples:
        return ""
    if any(e.picture for e in judged.examples):
        return f"<div class='examples'>{''.join(map(_card, judged.examples))}</div>"
    names = list(dict.fromkeys(n for e in judged.examples for n in e.cells))
    of_classes = judged.confusion is not None
    rows = [
        [escape(e.place), escape(e.truth), escape(e.answer), f"{e.sure:.2f}" if of_classes else grouped(e.sure, 4),
         *(escape(e.cells.get(n, "")) for n in names)]
        for e in judged.examples
    ]  # fmt: skip
    return table(["", "truth", "answer", "sure" if of_classes else "error", *names], rows, {3})


def _card(example: Example) -> str:
    picture = f"<img src='{escape(example.picture)}' alt='{escape(example.place)}'>"
    return (
        f"<div class='example'>{picture}<div><b>{escape(example.answer)}</b> ({example.sure:.0%})</div>"
        f"<div>truly {escape(example.truth)}</div><div class='dim'>{escape(example.place)}</div></div>"
    )


# ---- the rest


def _parameters(result: Result) -> str:
    rows = [
        [escape(p["name"]), " × ".join(map(str, p["shape"])) or "scalar", grouped(p["norm"], 4), grouped(p["change"]),
         f"{p['change'] / p['norm']:.1%}" if p["norm"] else "",
         "" if p["gradient"] is None else grouped(p["gradient"])]
        for p in result.parameters
    ]  # fmt: skip
    made = table(["name", "shape", "norm", "change", "", "last gradient"], rows, {2, 3, 4, 5})
    return _folded(f"{len(rows)} tensors", made) if len(rows) > 30 else made


def _decisions(result: Result) -> str:
    notes = "".join(f"<li>{escape(str(n))}</li>" for n in result.notes)
    return f"<ul>{notes}</ul>" if notes else ""


def _timing(result: Result) -> str:
    """Seconds by part, each step's share of them, and a bar."""
    total = sum(result.timing.values()) or 1.0
    rows = []
    for part, seconds in sorted(result.timing.items(), key=lambda item: -item[1]):
        per_step = 1000 * seconds / max(result.trained_steps, 1)
        bar = f"<div class='bar' style='width:{12 * seconds / total:.2f}rem'></div>"
        share = f"{seconds / total:.0%}"
        rows.append([escape(part), f"{seconds:.2f}", f"{per_step:.3g}", share, bar])
    return table(["", "s", "ms per step", "share", ""], rows, {1, 2, 3})


def _settings(result: Result) -> str:
    line = f"<p><code>{escape(command(result.model, result.config))}</code></p>"
    rows = [
        [escape(k), escape(str(v))] for k, v in vars(result.config).items() if v not in ("", None)
    ]
    return line + _folded("every setting", table([], rows, set()))


def _environment(result: Result) -> str:
    rows = [["onnxgrad", f"{onnxgrad.__version__} ({_native.instruction_set()})"]]
    rows += [[name, _version(name)] for name in ("onnxruntime", "onnx", "onnx-ir", "numpy")]
    rows += [
        ["Python", platform.python_version()],
        ["system", escape(platform.platform())],
        ["threads", f"{result.config.threads or 'all'} of {os.cpu_count()}"],
    ]
    return table([], rows, set())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed as a package"
