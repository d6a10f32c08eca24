"""Write a benchmark run as a page: `table.py RESULTS.json OUT.md`. Every line is shown, losses beside wins."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

from run import OLD, OURS, TORCH, limit_text, time_text

HEAD = """# Speed

Written by `make bench`. Times are the best of one run in which the contenders take turns, nine rounds each. *Ratio*:
the faster peer's best time of a round over ours inside an onnxruntime session (on NumPy arrays for 16 elements), the
median of the rounds, because the memory of a shared machine is quicker for some seconds and slower for others; bold
where it is below 1. *Limit*: our time, and the faster peer's, over that of a pass that only reads and writes as much
(stream; what stays in a cache can be quicker), likewise: where the peer is near 1×, no kernel can be much faster. Or
our share of the peak of fused multiply-adds; Winograd needs fewer operations than are counted here, and so can be above
100 %.

{environment}

Geometric mean of the ratios: {means}.

| operator | shape | threads | onnxgrad in ORT | on NumPy | PyTorch | ORT Training 1.19.2 | ratio | limit |
|---|---|--:|--:|--:|--:|--:|--:|--:|
"""


def ratio_text(row: dict) -> str:
    ratio = row["ratio"]
    if ratio is None:
        return "–"
    return f"{ratio:.2f}×" if ratio >= 1 else f"**{ratio:.2f}×**"


def line(row: dict) -> str:
    times = (time_text(row["milliseconds"].get(who)) for who in (*OURS, TORCH, OLD))
    cells = (row["op"], row["title"], str(row["threads"]), *times, ratio_text(row), limit_text(row))
    return "| " + " | ".join(cells) + " |\n"


def mean_text(rows: list[dict], threads: int) -> str:
    ratios = [r["ratio"] for r in rows if r["ratio"] and r["threads"] == threads]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"{mean:.2f}× on {threads} thread{'s' if threads > 1 else ''} ({len(ratios)} lines)"


def page(results: dict) -> str:
    rows, env = results["rows"], results["environment"]
    machine = (
        f"{env['processor']}, {env['cores']} cores, {env['instruction_set']}; onnxruntime {env['onnxruntime']}, "
        f"PyTorch {env['torch']}, onnxruntime-training {env['onnxruntime_training']}; {env['date']}."
    )
    means = ", ".join(mean_text(rows, t) for t in sorted({r["threads"] for r in rows}))
    return HEAD.format(environment=machine, means=means) + "".join(map(line, rows))


def main() -> None:
    source, target = map(Path, sys.argv[1:3])
    target.write_text(page(json.loads(source.read_text())))
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
