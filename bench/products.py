"""Linear layers at the shapes of transformer steps: ours, MLAS (onnxruntime) and PyTorch, in GFLOP/s.

    python bench/products.py --torch python [--seconds 0.3] [--threads 1]

Contenders take turns and the best time counts; on one thread it is processor time, so that a busy machine disturbs
little. `graph/patterns/linear.py` states which layers become our operator; "chosen" is the speed of what it takes over
that of the quickest of the three, for the layer as a whole (forward, both gradients, the sum).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from run import Limits
from worker import Worker

from onnxgrad.graph.patterns.linear import gains

# rows, K, N
SHAPES = [
    (512, 768, 768), (512, 768, 3072), (512, 3072, 768), (1024, 256, 768), (1024, 256, 1024), (1024, 1024, 256),
    (1024, 256, 8000), (580, 192, 576), (580, 192, 768), (580, 768, 192), (4096, 64, 256), (64, 64, 64), (512, 256, 10),
]  # fmt: skip
KINDS = ("X·W + B", "dY·Wᵀ", "Xᵀ·dY, ΣdY")
WHO = ("ours", "MLAS", "PyTorch")
ROUNDS, TARGET = 4, 0.97


def measure(workers: dict[str, Worker], shape, kind: int, arguments) -> dict[str, float]:
    """Seconds of one product by contender; their results agree."""
    line, results = ",".join(map(str, (*shape, kind))), {}
    with tempfile.TemporaryDirectory() as folder:
        for who, worker in workers.items():
            answer = worker.ask(prepare=line, threads=arguments.threads)
            if "error" in answer:
                raise RuntimeError(f"{who}, {line}: {answer['error']}")
            worker.ask(result=f"{folder}/{who}.npz")
            results[who] = dict(np.load(f"{folder}/{who}.npz"))
    for who in WHO[1:]:
        for name, array in results[who].items():
            np.testing.assert_allclose(results["ours"][name], array, rtol=0, atol=2e-4, err_msg=who)
    clock, times = "cpu" if arguments.threads == 1 else "wall", {who: [] for who in workers}
    for _ in range(ROUNDS):
        for who, worker in workers.items():
            times[who] += worker.times(arguments.seconds / ROUNDS, clock)
    return {who: min(found) for who, found in times.items()}


def row_of(shape, found: list[dict[str, float]]) -> dict:
    m, k, n = shape
    chosen = "ours" if gains(k, n) else "MLAS"
    total = {who: sum(seconds[who] for seconds in found) for who in WHO}
    speeds = [{who: 2e-9 * m * k * n / s for who, s in seconds.items()} for seconds in found]
    share = min(total.values()) / total[chosen]
    return {"shape": list(shape), "gflops": speeds, "chosen": chosen, "share": share}


def show(peak: float, rows: list[dict]) -> None:
    print(f"peak of fused multiply-adds: {peak:.0f} GFLOP/s; {' / '.join(WHO)} in GFLOP/s")
    print(
        f"{'rows, K, N':>16}  "
        + "  ".join(f"{kind:>24}" for kind in KINDS)
        + "  chosen, of the quickest"
    )
    for row in rows:
        cells = (" / ".join(f"{speeds[who]:6.1f}" for who in WHO) for speeds in row["gflops"])
        m, k, n = row["shape"]
        mark = "" if row["share"] >= TARGET else "  BELOW"
        print(f"{m:5} {k:4} {n:5}  " + "  ".join(f"{c:>24}" for c in cells)
              + f"  {row['chosen']} {row['share']:.2f}{mark}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", required=True, help="a Python that has PyTorch")
    parser.add_argument("--seconds", type=float, default=0.3, help="per contender and product")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    peak = Limits().ask("fma", arguments.threads, 1.0)
    pythons = {"ours": sys.executable, "MLAS": sys.executable, "PyTorch": arguments.torch}
    workers = {who: Worker(python, "product.py", who) for who, python in pythons.items()}
    rows = []
    for shape in SHAPES:
        found = [measure(workers, shape, kind, arguments) for kind in range(len(KINDS))]
        rows.append(row_of(shape, found))
    for worker in workers.values():
        worker.end()
    show(peak, rows)
    if arguments.output:
        arguments.output.write_text(json.dumps({"peak": peak, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
