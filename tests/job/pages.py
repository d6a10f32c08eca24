"""Reports of made-up runs: `python tests/job/pages.py` writes them to tests/golden/pages, to be looked at in a browser.

A section that an earlier page has as well is kept there alone; the later page says in which one.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from onnxgrad.job.config import Config
from onnxgrad.job.judging import Example, Judged
from onnxgrad.job.outcome import Result
from onnxgrad.job.report import page
from onnxgrad.notes import Note

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "pages"


def run(judged: Judged | None, tensors: int, **more) -> Result:
    epochs = [
        {
            "epoch": e,
            "step": 4 * e,
            "loss": 2.0 / e,
            "val_loss": 2.5 / e,
            "val_accuracy": 0.3 * e,
            "lr": 0.01,
        }
        for e in (1, 2, 3)
    ]
    steps = [
        {"step": s, "loss": 3.0 / s, "lr": 0.001 * s, **({"grad_norm": 1.0 * s} if s % 2 else {})}
        for s in range(1, 13)
    ]
    parameters = [
        {
            "name": f"w<{n}>",
            "shape": [] if n == 1 else [n, 3],
            "norm": float(n * tensors),
            "change": 0.5 * n,
            "gradient": None if n == 2 else 0.25 * n,
        }
        for n in range(tensors)
    ]
    settings = {
        "before": {"val_loss": 2.75, "val_accuracy": 0.25},
        "after": {"val_loss": 0.8333333, "val_accuracy": 0.9},
    }
    return Result(
        Config(output="out/tuned.onnx", data="d.csv"),
        "in/m&m.onnx",
        Path("run"),
        [Note("target", "y", "target: 'y' <b>")],
        **{
            **settings,
            "epochs": epochs,
            "steps": steps,
            "parameters": parameters,
            "judged": judged,
            "timing": {"step": 3.0, "data": 1.0, "validation": 0.0},
            "trained_steps": 12,
            "seconds": 12.345,
            **more,
        },
    )


def classes(count: int) -> Judged:
    confusion = np.zeros((count, count), int)
    confusion[np.arange(count), np.arange(count)] = np.arange(count) * (count - 1)
    confusion[1, 0] = 5
    names = [f"class {n}" for n in range(count)]
    return Judged(names, confusion, bins=[(0.55, 0.5, 4), (0.95, 0.75, 12)])


RUNS = {
    "classes": lambda: run(classes(4), 3),
    "many classes": lambda: run(classes(21), 31, stop="val_loss did not improve"),
    "fourteen classes": lambda: run(classes(14), 30),
    "rows": lambda: run(Judged(["a", "b"], np.array([[3, 1], [0, 2]]), examples=[Example(3, "row 3", "a", "b", 0.9, cells={"x": "1.5", "y": "<i>"}), Example(4, "row 4", "b", "a", 0.6, cells={"z": "7"})]), 1),
    "pictures": lambda: run(Judged(["a", "b"], np.array([[3, 1], [0, 2]]), examples=[Example(0, "cat/1.png", "a", "b", 0.876, "data:image/png;base64,AAAA")]), 1),
    "numbers": lambda: run(Judged(points=[(0.0, 0.5), (2.0, 1.5), (float("nan"), 1.0)], examples=[Example(0, "row 0", "1", "2", 1.25, cells={"x": "3"})]), 1),
    "nothing": lambda: run(None, 0, epochs=[], steps=[], timing={}, trained_steps=0, after={}),
}  # fmt: skip


def sections(title: str) -> list[str]:
    """Return a page without what differs between machines, heading by heading, a line for each element."""
    text = page(RUNS[title]())
    text = "<h1>" + text.split("<h1>")[1].split("<h2>Settings</h2>")[0]
    lines = re.sub(
        r"(?<!^)(?=<(?:tr|div|h1|h2|p|line|text|circle|polyline|svg|details|style))", "\n", text
    )
    return re.split(r"\n(?=<h2>)", lines)


def shown() -> dict[str, str]:
    """Return what is kept of each page."""
    first: dict[str, str] = {}  # section -> the page that has it first
    kept = {}
    for title in RUNS:
        parts = []
        for section in sections(title):
            page_of = first.setdefault(section, title)
            again = f"<!-- {section.splitlines()[0]} as in {file_of(page_of).name} -->"
            parts.append(section if page_of == title else again)
        kept[title] = "\n".join(parts)
    return kept


def file_of(title: str) -> Path:
    return FOLDER / f"{title.replace(' ', '-')}.html"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for title, text in shown().items():
        file_of(title).write_text(text, encoding="utf-8")
