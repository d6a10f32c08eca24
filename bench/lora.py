"""LoRA steps (forward, backward, AdamW; rank 8) beside peft in PyTorch, of a base in floats and in 4 bits.

    python bench/lora.py --torch python [--only encoder] [--threads 2] [--seconds 10] [--clock cpu]

`--torch` is a Python with torch, peft, onnx and bitsandbytes. Contenders are timed in turns and the best time counts;
the first losses are compared before that. `--clock cpu` takes processor time instead of wall time: on one thread a busy
machine then disturbs little. A ratio is PyTorch's time over ours: below 1 is a loss.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from worker import WORKERS, Worker

sys.path.insert(0, str(WORKERS))
from lora_networks import PROBLEMS

ROUNDS = 6
TARGETS = {32: 1.3, 4: 2.0}  # bits of the base -> the ratio that is promised
NEAR = {32: 1e-4, 4: 2e-2}  # of first losses; both round to 4 bits in their own way
SCRIPTS = {"onnxgrad": "lora_onnxgrad.py", "PyTorch": "lora_pytorch.py"}


def measured(name: str, bits: int, folder: Path, arguments) -> dict:
    """Seconds of a step and peak megabytes of each contender."""
    (folder / "line.json").write_text(json.dumps({"name": name, "bits": bits}))
    pythons = {"onnxgrad": sys.executable, "PyTorch": arguments.torch}
    workers = {who: Worker(pythons[who], script) for who, script in SCRIPTS.items()}
    first = {}
    for who, worker in workers.items():
        answer = worker.ask(prepare=str(folder), threads=arguments.threads)
        if "error" in answer:
            raise RuntimeError(f"{who}, {name} in {bits} bits: {answer['error']}")
        worker.ask(result=str(folder / f"{who}.npz"))
        first[who] = np.load(folder / f"{who}.npz")["loss"][0]
    np.testing.assert_allclose(first["onnxgrad"], first["PyTorch"], rtol=NEAR[bits])
    times = {who: [] for who in workers}
    for _ in range(ROUNDS):
        for who, worker in workers.items():
            times[who] += worker.times(arguments.seconds / ROUNDS, arguments.clock)
    found = {who: {"seconds": min(times[who]), "peak_mb": w.peak()} for who, w in workers.items()}
    for worker in workers.values():
        worker.end()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--torch", required=True, help="a Python with torch, peft and bitsandbytes")
    parser.add_argument("--only", nargs="*", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--bits", nargs="*", type=int, choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each contender and line")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    arguments = parser.parse_args()
    table = Table(
        "network",
        "base",
        "onnxgrad",
        "PyTorch",
        "ratio",
        "promised",
        "tokens/s",
        "peak MB",
        box=None,
    )
    missed = 0
    for name in arguments.only:
        with tempfile.TemporaryDirectory() as work:
            subprocess.run(
                [arguments.torch, WORKERS / "lora_pytorch.py", "export", name, work],
                check=True, capture_output=True, env={"PATH": "/usr/bin:/bin"},
            )  # fmt: skip
            for bits in arguments.bits:
                found = measured(name, bits, Path(work), arguments)
                ours, theirs = (found[who]["seconds"] for who in SCRIPTS)
                missed += theirs / ours < TARGETS[bits]
                table.add_row(
                    name, "float32" if bits == 32 else "NF4", f"{ours * 1e3:.1f} ms", f"{theirs * 1e3:.1f} ms",
                    f"{theirs / ours:.2f}", f"{TARGETS[bits]:.1f}", f"{PROBLEMS[name][2] / ours:,.0f}",
                    " / ".join(f"{found[who]['peak_mb']:.0f}" for who in SCRIPTS),
                )  # fmt: skip
    Console(width=130).print(table)
    clock = "processor time" if arguments.clock == "cpu" else "wall clock"
    print(
        f"{arguments.threads} threads, best of {ROUNDS} rounds, {clock}; a step is forward, backward and AdamW"
    )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
