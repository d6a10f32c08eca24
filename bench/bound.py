"""How much faster than PyTorch a step could be at all: its linear layers at the processor's peak, all else for free.

    python bench/bound.py [--torch python] [--only vit gpt]     # the networks of bench/exported.py, one thread

The operations are those that the training graph is left with, after rows that nobody reads were taken out. No program
that multiplies in float32 does them in less time than `peak`. A step of the same network in PyTorch (bench/exported.py,
one thread) over that time is the ratio that nobody can pass; attention, convolutions, normalisations, activations, the
loss and the optimizer come on top.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from exported import EAGER, EXPORTS, NAMES, exported, geometric_mean
from profiled import profile
from run import Limits

ROOT = Path(__file__).resolve().parents[1]
TIMES = ROOT / "bench" / "results" / "exported.json"
STEPS = 3  # operations are counted, times are not looked at


def bound_of(name: str, peak: float) -> dict:
    folder = EXPORTS / name / "torchscript"
    nodes = profile(str(folder / "model.onnx"), str(folder / "batch.npz"), steps=STEPS).nodes
    operations = sum(node.flops() for node in nodes)
    return {"name": name, "gflop": operations / 1e9, "ms": operations / peak / 1e6}


def rivals() -> dict[str, float]:
    """PyTorch's milliseconds on one thread, by network, as bench/exported.py wrote them down."""
    rows = json.loads(TIMES.read_text())["rows"] if TIMES.exists() else []
    return {r["name"]: r["contenders"][EAGER]["ms"] for r in rows if r["threads"] == 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--torch", help="a Python that has PyTorch, to export what is missing")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    if arguments.torch:
        exported(arguments.torch, arguments.only, ["torchscript"])
    peak = Limits().ask("fma", 1, 1.0)
    rows, torch = [bound_of(name, peak) for name in arguments.only], rivals()
    print(f"peak of fused multiply-adds: {peak:.0f} GFLOP/s")
    for row in rows:
        row["most"] = torch[row["name"]] / row["ms"] if row["name"] in torch else None
        most = f", PyTorch {row['most']:.2f} times that" if row["most"] else ""
        print(f"{row['name']:10} {row['gflop']:6.1f} GFLOP, at the peak {row['ms']:6.1f} ms{most}")
    if all(row["most"] for row in rows):
        print(f"geometric mean {geometric_mean([row['most'] for row in rows]):.2f}")
    if arguments.output:
        arguments.output.write_text(json.dumps({"peak": peak, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
