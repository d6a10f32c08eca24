"""What more cores could reach: the work and the span of one training step.

    python bench/work_span.py model.onnx batch.npz [--loss cross_entropy]

A step is run on one thread, and the processor time of every piece of every parallel part of our operators is noted, and
of what they do between such parts. From that follows the time on 2 to 32 cores: pieces are handed out in their order,
each to the first core that is free, and every part wakes its cores once. What onnxruntime's own nodes and the optimizer
take is counted twice, as if it stayed on one core and as if it were shared out perfectly: the truth lies between.
`batch.npz` holds `x` and `y`, as bench/exported.py makes them.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path

CORES = (1, 2, 4, 8, 16, 32)
WAKE = 3.0  # µs to wake a pool whose threads wait for work
STEPS = 4  # the last one counts: the first ones allocate


def scheduled(pieces: list[float], cores: int) -> float:
    """When the last core is done."""
    if cores == 1 or len(pieces) < 2:
        return sum(pieces)
    free = [0.0] * min(cores, len(pieces))
    for piece in pieces:
        heapq.heapreplace(free, free[0] + piece)
    return max(free) + WAKE


def predicted(call: dict, cores: int) -> float:
    """µs of one call of an operator."""
    serial = call["us"] - sum(map(sum, call["parts"]))
    return serial + sum(scheduled(part, cores) for part in call["parts"])


def metered(model: str, batch: str, loss: str) -> tuple[list[dict], float]:
    """The calls of one step, and the processor time of the whole step in µs."""
    import numpy as np
    import onnx

    import onnxgrad

    log = Path(os.environ["ONNXGRAD_PIECES"])
    data = np.load(batch)
    trainer = onnxgrad.Trainer(onnx.load(model), loss=loss, threads=1)
    for _ in range(STEPS):
        log.write_text("")
        begin = time.process_time()
        trainer.step(data["x"], data["y"])
        total = (time.process_time() - begin) * 1e6
    return [json.loads(line) for line in log.read_text().splitlines()], total


def report(calls: list[dict], total: float) -> None:
    ours = sum(c["us"] for c in calls)
    others = max(0.0, total - ours)
    print(
        f"one step: {total / 1e3:.1f} ms of processor time, {ours / total:.0%} of it in {len(calls)} calls of ours"
    )
    for cores in CORES[1:]:
        time_of_ours = sum(predicted(c, cores) for c in calls)
        low, high = total / (time_of_ours + others), total / (time_of_ours + others / cores)
        print(
            f"{cores:3} cores: our operators {ours / time_of_ours:5.2f} times as fast; "
            f"the step {low:5.2f} (the rest on one core) to {high:5.2f} (the rest shared out)"
        )
    lost = defaultdict(float)
    for c in calls:  # what keeps 16 cores waiting
        lost[c["op"]] += predicted(c, 16) - c["us"] / 16
    print("on 16 cores most is lost in " + ", ".join(
        f"{op} ({us / 1e3:.2f} ms)" for op, us in sorted(lost.items(), key=lambda i: -i[1])[:3]))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("batch")
    parser.add_argument("--loss", default="cross_entropy")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ONNXGRAD_PIECES"] = str(
            Path(folder, "pieces.jsonl")
        )  # before the library is loaded
        report(*metered(arguments.model, arguments.batch, arguments.loss))


if __name__ == "__main__":
    main()
