"""Training steps (forward, backward, AdamW) of networks that PyTorch's two exporters wrote, beside PyTorch itself.

    python bench/exported.py --torch python [--only vit gpt] [--threads 1 2] [--seconds 3] [--clock cpu] [--compile]

The networks are in workers/networks.py; their files stay in build/exported. Contenders are timed in turns and the
best time counts; the first losses are compared before that. `--clock cpu` takes processor time instead of wall
time: on one thread a busy machine then disturbs little; on several it adds up what they take. A ratio is PyTorch's time
over ours: below 1 is a loss. `--compile` also times torch.compile, on the first number of threads only: it compiles for
a minute per network. Memory is the most that a process held, Python and its libraries included.
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

ROOT = Path(__file__).resolve().parents[1]
EXPORTS = ROOT / "build" / "exported"
NAMES = ("vit", "bert", "gpt", "t5", "convnext", "mixer")
EXPORTERS = ("torchscript", "dynamo")
EAGER, COMPILED = "PyTorch", "torch.compile"
ROUNDS = 4
TARGETS = {"least": 1.2, "mean": 1.4}


def exported(torch: str, names, exporters=EXPORTERS) -> dict[str, Path]:
    """Folders of exported networks by "name/exporter", made where they are missing."""
    wanted = [f"{name}/{exporter}" for name in names for exporter in exporters]
    command = [torch, WORKERS / "export.py", EXPORTS, *wanted]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"export failed:\n{done.stderr[-2000:]}")
    return {one: EXPORTS / one for one in wanted}


def started(name: str, compiled: bool, arguments, work: Path) -> dict[str, tuple[Worker, Path]]:
    """The contenders' processes, and the folder that each prepares from."""
    found = {
        e: (Worker(sys.executable, "train_onnxgrad.py"), EXPORTS / name / e) for e in EXPORTERS
    }
    for rival in (EAGER, COMPILED) if compiled else (EAGER,):
        folder = work / rival
        folder.mkdir()
        line = {"name": name, "compile": rival == COMPILED}
        (folder / "line.json").write_text(json.dumps(line))
        found[rival] = Worker(arguments.torch, "exported_pytorch.py"), folder
    return found


def prepare(contenders, threads: int, work: Path) -> dict[str, str]:
    """Make every contender ready for its first timing; those that fail are named with the reason."""
    failed, losses = {}, {}
    for who, (worker, folder) in contenders.items():
        answer = worker.ask(prepare=str(folder), threads=threads)
        if "error" in answer:
            failed[who] = answer["error"].splitlines()[0][:200]
            continue
        worker.ask(result=str(work / "losses.npz"))
        losses[who] = np.load(work / "losses.npz")["loss"][0]
    if EAGER in failed:
        raise RuntimeError(f"{EAGER}: {failed[EAGER]}")
    for who, loss in losses.items():
        np.testing.assert_allclose(loss, losses[EAGER], rtol=1e-4, err_msg=who)
    return failed


def run(name: str, threads: int, compiled: bool, arguments) -> dict:
    """Milliseconds and peak megabytes of each contender."""
    with tempfile.TemporaryDirectory() as folder:
        contenders = started(name, compiled, arguments, Path(folder))
        failed = prepare(contenders, threads, Path(folder))
        workers = {who: worker for who, (worker, _) in contenders.items() if who not in failed}
        times = {who: [] for who in workers}
        for _ in range(ROUNDS):
            for who, worker in workers.items():
                times[who] += worker.times(arguments.seconds / ROUNDS, arguments.clock)
        result = {w: {"ms": min(times[w]) * 1e3, "peak_mb": workers[w].peak()} for w in workers}
        for worker, _ in contenders.values():
            worker.end()
    return {"name": name, "threads": threads, "contenders": result, "failed": failed}


def ratios(rows: list[dict]) -> list[float]:
    """PyTorch's time over that of the slower of our two files."""
    found = []
    for row in rows:
        ours = [row["contenders"][e]["ms"] for e in EXPORTERS if e in row["contenders"]]
        found.append(row["contenders"][EAGER]["ms"] / max(ours) if ours else math.nan)
    return found


def geometric_mean(numbers: list[float]) -> float:
    return math.exp(sum(map(math.log, numbers)) / len(numbers))


def show(rows: list[dict], clock: str) -> None:
    for threads in sorted({r["threads"] for r in rows}):
        part = [r for r in rows if r["threads"] == threads]
        table = Table(title=f"one training step, threads: {threads}, {clock} time")
        columns = [
            *EXPORTERS,
            EAGER,
            *([COMPILED] if any(COMPILED in r["contenders"] for r in part) else []),
        ]
        for column in ("", *columns):
            table.add_column(column, justify="right" if column else "left")
        for row in part:
            table.add_row(row["name"], *(_cell(row, who) for who in columns))
        Console(width=150).print(table)
        found = ratios(part)
        mean, least = geometric_mean(found), min(found)
        verdict = "met" if least >= TARGETS["least"] and mean >= TARGETS["mean"] else "MISSED"
        print(
            f"against PyTorch, the slower file of each: geometric mean {mean:.2f} (wanted {TARGETS['mean']}), "
            f"least {least:.2f} (wanted {TARGETS['least']}): {verdict}"
        )
        for row in part:
            for who, why in row["failed"].items():
                print(f"{row['name']}: {who} failed: {why}")


def _cell(row: dict, who: str) -> str:
    found = row["contenders"].get(who)
    if found is None:
        return "failed" if who in row["failed"] else "–"
    ratio = f" ({row['contenders'][EAGER]['ms'] / found['ms']:.2f}×)" if who != EAGER else ""
    return f"{found['ms']:.1f} ms{ratio}, {found['peak_mb']:.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=3.0, help="per contender and network")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--compile", action="store_true", help="torch.compile, too")
    parser.add_argument("--torch", required=True, help="a Python that has PyTorch and onnxscript")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    exported(arguments.torch, arguments.only)
    rows = []
    for threads in arguments.threads:
        for name in arguments.only:
            compiled = arguments.compile and threads == arguments.threads[0]
            rows.append(run(name, threads, compiled, arguments))
            found = ", ".join(f"{who} {_cell(rows[-1], who)}" for who in rows[-1]["contenders"])
            print(f"{name}, threads {threads}: {found}", file=sys.stderr, flush=True)
    show(rows, arguments.clock)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(
            json.dumps({"clock": arguments.clock, "rows": rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
