"""A whole training step (forward, backward, AdamW) beside PyTorch and onnxruntime-training 1.19.2, in one run.

    python bench/training.py [--only mlp] [--threads 2] [--seconds 3] [--torch python] [--old python] [--before python]

Each contender is a process of its own that waits while the others run; the best time of alternating rounds counts.
The first losses are compared before anything is timed. A ratio is a peer's time over ours: below 1 is a loss.
`--before` is a Python that has another build of onnxgrad. `--clock cpu` takes processor time, for a busy machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table
from training_models import WORKLOADS
from worker import Worker

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 5
PARAMETERS = 25_000_000
BEFORE = "onnxgrad before"
PEERS = (BEFORE, "PyTorch", "onnxruntime-training")


def contenders(kind: str, arguments) -> dict[str, tuple[str, str]]:
    found = {"onnxgrad": (sys.executable, f"{kind}_onnxgrad.py")}
    if arguments.before:
        found[BEFORE] = (arguments.before, f"{kind}_onnxgrad.py")
    if arguments.torch:
        found["PyTorch"] = (arguments.torch, f"{kind}_pytorch.py")
    if arguments.old and kind == "train":
        found["onnxruntime-training"] = (arguments.old, f"{kind}_old.py")
    return found


def write(name: str, folder: Path) -> str:
    """Put a workload into `folder` for the workers; return its title."""
    if name == "adamw":
        (folder / "line.json").write_text(json.dumps({"name": name, "parameters": PARAMETERS}))
        return f"AdamW alone, {PARAMETERS // 1_000_000} M parameters"
    load = WORKLOADS[name]()
    onnx.save(load.model, folder / "model.onnx")
    np.savez(folder / "batch.npz", x=load.x, y=load.y)
    np.savez(folder / "weights.npz", **load.net.weights)
    trained = [n for n in load.net.weights if not n.endswith(("/m", "/v"))]
    (folder / "line.json").write_text(json.dumps({"name": name, "trained": trained}))
    return load.title


def run(name: str, arguments) -> dict:
    """Prepare every contender, compare their first results, then time them in turns."""
    kind = "optimizer" if name == "adamw" else "train"
    result = {"name": name, "threads": arguments.threads, "ms": {}, "peak_mb": {}, "failed": {}}
    with tempfile.TemporaryDirectory() as work:
        result["title"] = write(name, Path(work))
        workers, values = {}, {}
        for who, (python, script) in contenders(kind, arguments).items():
            worker = Worker(python, script)
            answer = worker.ask(prepare=work, threads=arguments.threads)
            if "error" in answer:
                result["failed"][who] = answer["error"].splitlines()[0][:160]
                continue
            worker.ask(result=f"{work}/{len(values)}.npz")
            values[who] = dict(np.load(f"{work}/{len(values)}.npz"))
            workers[who] = worker
        compare(values)
        times = {who: [] for who in workers}
        for _ in range(ROUNDS):
            for who, worker in workers.items():
                times[who] += worker.times(arguments.seconds / ROUNDS, arguments.clock)
        for who, worker in workers.items():
            result["ms"][who] = min(times[who]) * 1e3
            result["peak_mb"][who] = worker.peak()
            worker.end()
    return result


def compare(values: dict[str, dict]) -> None:
    """The first loss, before any update, and the first updates agree with ours."""
    ours = values["onnxgrad"]
    for who, theirs in values.items():
        for key, array in theirs.items():
            size = min(len(array), len(ours[key]))
            np.testing.assert_allclose(array[:size], ours[key][:size], rtol=2e-3, err_msg=who)


def show(results: list[dict]) -> None:
    table = Table(title=f"one training step, {results[0]['threads']} threads")
    peers = [w for w in PEERS if any(w in r["ms"] or w in r["failed"] for r in results)]
    for column in ("", "onnxgrad ms", *peers, "peak MB"):
        table.add_column(column, justify="left" if not column else "right")
    for r in results:
        ours = r["ms"]["onnxgrad"]
        cells = [r["title"], f"{ours:.2f}"]
        for who in peers:
            ms = r["ms"].get(who)
            cells.append(f"{ms:.2f} ({ms / ours:.2f}×)" if ms else r["failed"].get(who, "-")[:40])
        cells.append(" / ".join(f"{v:.0f}" for v in r["peak_mb"].values()))
        table.add_row(*cells)
    Console(width=150).print(table)
    for who in peers:
        ratios = [r["ms"][who] / r["ms"]["onnxgrad"] for r in results
                  if who in r["ms"] and r["name"] != "adamw"]  # fmt: skip
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"against {who}: geometric mean {mean:.2f}, least {min(ratios):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[*WORKLOADS, "adamw"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="per contender and model")
    parser.add_argument("--torch", help="a Python that has PyTorch")
    parser.add_argument("--old", help="a Python that has onnxruntime-training-cpu 1.19.2")
    parser.add_argument("--before", help="a Python that has another build of onnxgrad")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    results = [run(name, arguments) for name in arguments.only]
    show(results)
    if arguments.output:
        machine = {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        machine["clock"] = arguments.clock
        arguments.output.write_text(json.dumps({**machine, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
