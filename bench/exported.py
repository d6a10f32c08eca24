"""Training steps (forward, backward, AdamW) of networks that PyTorch's two exporters wrote, beside PyTorch itself.

    python bench/exported.py --torch python [--only vit gpt] [--threads 1] [--seconds 5] [--clock cpu] [--compile]

The networks are in workers/networks.py. Contenders are timed in turns and the best time counts; the first losses are
compared before that. `--clock cpu` takes processor time instead of wall time: on one thread a busy machine then
disturbs little. A ratio is PyTorch's time over ours: below 1 is a loss.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from worker import WORKERS, Worker

NAMES = ("vit", "bert", "gpt", "t5", "convnext", "mixer")
EXPORTERS = ("torchscript", "dynamo")
ROUNDS = 4


def prepared(
    workers: dict[str, Worker], folders: dict[str, Path], threads: int
) -> dict[str, Worker]:
    """The workers that are ready for their first timing; their first losses agree."""
    first = None
    for who, worker in workers.items():
        answer = worker.ask(prepare=str(folders[who]), threads=threads)
        if "error" in answer:
            raise RuntimeError(f"{who}: {answer['error']}")
        worker.ask(result=str(folders[who] / "losses.npz"))
        loss = np.load(folders[who] / "losses.npz")["loss"][0]
        first = loss if first is None else first
        np.testing.assert_allclose(loss, first, rtol=1e-4, err_msg=who)
    return workers


def run(name: str, arguments) -> dict:
    """Milliseconds and peak megabytes of each contender."""
    with tempfile.TemporaryDirectory() as work:
        folders, workers = {}, {}
        for exporter in EXPORTERS:
            folders[exporter] = Path(work, exporter)
            folders[exporter].mkdir()
            export = [arguments.torch, WORKERS / "export.py", name, exporter, folders[exporter]]
            subprocess.run(export, check=True, capture_output=True, env={"PATH": "/usr/bin:/bin"})
            workers[exporter] = Worker(sys.executable, "train_onnxgrad.py")
        rivals = {"PyTorch": False, **({"torch.compile": True} if arguments.compile else {})}
        for rival, compiled in rivals.items():
            folders[rival] = Path(work, rival)
            folders[rival].mkdir()
            (folders[rival] / "line.json").write_text(
                json.dumps({"name": name, "compile": compiled})
            )
            workers[rival] = Worker(arguments.torch, "exported_pytorch.py")
        times = {who: [] for who in prepared(workers, folders, arguments.threads)}
        for _ in range(ROUNDS):
            for who, worker in workers.items():
                times[who] += worker.times(arguments.seconds / ROUNDS, arguments.clock)
        result = {
            who: {"ms": min(times[who]) * 1e3, "peak_mb": w.peak()} for who, w in workers.items()
        }
        for worker in workers.values():
            worker.end()
    return {
        "name": name,
        "threads": arguments.threads,
        "clock": arguments.clock,
        "contenders": result,
    }


def show(results: list[dict]) -> None:
    table = Table(
        title=f"one training step, {results[0]['threads']} threads, {results[0]['clock']} time"
    )
    for column in ("", *results[0]["contenders"]):
        table.add_column(column, justify="right" if column else "left")
    ratios = []
    for r in results:
        torch = r["contenders"]["PyTorch"]["ms"]
        cells = [r["name"]]
        for who, found in r["contenders"].items():
            ratio = f" ({torch / found['ms']:.2f}×)" if who != "PyTorch" else ""
            cells.append(f"{found['ms']:.1f} ms{ratio}, {found['peak_mb']:.0f} MB")
            ratios += [torch / found["ms"]] if who in EXPORTERS else []
        table.add_row(*cells)
    Console(width=150).print(table)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"against PyTorch: geometric mean {mean:.2f}, least {min(ratios):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="per contender and network")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--compile", action="store_true", help="torch.compile, too")
    parser.add_argument("--torch", required=True, help="a Python that has PyTorch and onnxscript")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    results = [run(name, arguments) for name in arguments.only]
    show(results)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
