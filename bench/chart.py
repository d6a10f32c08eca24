"""Draw a benchmark run as an SVG that reads on light and dark pages: `chart.py RESULTS.json OUT.svg`.

One bar for each operator: of its lines, the one with the lowest ratio. All lines are in docs/speed.md.
"""

from __future__ import annotations

import json
import math
import sys
from html import escape
from pathlib import Path

ROW, LEFT, WIDTH, TOP = 20, 370, 890, 60
STEPS = (0.5, 1, 2, 4, 8, 16, 32)


def position(ratio: float) -> float:
    """Ratios are drawn on a logarithmic axis: twice as fast and half as fast are equally far from 1."""
    low, high = math.log(STEPS[0]), math.log(STEPS[-1])
    bounded = min(max(math.log(ratio), low), high)
    return LEFT + (bounded - low) / (high - low) * (WIDTH - LEFT - 60)


def bar(y: int, row: dict) -> str:
    ratio = row["ratio"]
    start, end = sorted((position(1), position(ratio)))
    colour = "#2a9d5c" if ratio >= 1 else "#d1495b"
    label = escape(f"{row['op']}  {row['title']}")
    return (
        f'<text x="{LEFT - 10}" y="{y + 13}" text-anchor="end">{label}</text>'
        f'<rect x="{start:.1f}" y="{y + 3}" width="{max(end - start, 1):.1f}" height="13" rx="2" fill="{colour}"/>'
        f'<text x="{position(ratio) + (6 if ratio >= 1 else -6):.1f}" y="{y + 13}" '
        f'text-anchor="{"start" if ratio >= 1 else "end"}">{ratio:.{1 if ratio >= 2 else 2}f}×</text>'
    )


def worst_lines(rows: list[dict], threads: int) -> list[dict]:
    worst: dict[str, dict] = {}
    for row in rows:
        if row["threads"] == threads and row["ratio"]:
            worst[row["op"]] = min(row, worst.get(row["op"], row), key=lambda r: r["ratio"])
    return list(worst.values())


def draw(results: dict, threads: int) -> str:
    rows = worst_lines(results["rows"], threads)
    height = TOP + ROW * len(rows) + 30
    grid = "".join(
        f'<line x1="{position(s):.1f}" x2="{position(s):.1f}" y1="{TOP - 8}" y2="{height - 26}" class="grid"/>'
        f'<text x="{position(s):.1f}" y="{TOP - 14}" text-anchor="middle" class="dim">{s:g}×</text>'
        for s in STEPS
    )
    env = results["environment"]
    plural = "" if threads == 1 else "s"
    note = (
        f"{env['processor']}, {threads} thread{plural}, {env['instruction_set']}; PyTorch {env['torch']}, "
        f"onnxruntime-training {env['onnxruntime_training']}, onnxruntime {env['onnxruntime']}; "
        f"{env['date']}"
    )
    style = (
        "text{font:12px system-ui,sans-serif;fill:#57606a}.dim{font-size:11px}.title{font-size:14px;font-weight:600}"
        ".grid{stroke:#8c959f;stroke-opacity:.3}"
    )
    title = "Speed over the faster of PyTorch and onnxruntime-training 1.19.2: each operator's worst shape"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
        f"<title>{title}</title><style>{style}</style>"
        f'<text x="10" y="22" class="title">{title}</text>{grid}'
        + "".join(bar(TOP + ROW * i, r) for i, r in enumerate(rows))
        + f'<text x="10" y="{height - 8}" class="dim">{escape(note)}</text></svg>\n'
    )


def main() -> None:
    source, target = map(Path, sys.argv[1:3])
    results = json.loads(source.read_text())
    threads = int(sys.argv[3]) if len(sys.argv) > 3 else max(r["threads"] for r in results["rows"])
    target.write_text(draw(results, threads))
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
