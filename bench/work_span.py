"""What more cores could reach: the work and the span of one training step.

    python bench/work_span.py [--torch python] [--only vit unet]     # the networks of bench/exported.py, and five more
    python bench/work_span.py model.onnx batch.npz [--loss cross_entropy]

A step is run on one thread, and the processor time of every piece of every parallel part of our operators is noted, and
of what they do between such parts. From that follows the time on 2 to 32 cores: pieces are handed out in their order,
each to the first core that is free, and every part wakes its cores once. onnxruntime's own nodes are shared out where
its kernel of that operator is (the list is below), in pieces of at least 10 µs; other nodes, and what lies between
nodes, stay on one core. The optimizer is cut into pieces of 10 µs, too. `batch.npz` holds `x` and `y`.

"At most" is what the same nodes would reach if all their work could be divided without a rest: what is left are the
wakings, and what lies between nodes. Only fewer nodes, or fewer parts, can pass it.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

CORES = (2, 4, 8, 16, 32)
WAKE = 3.0  # µs to wake a pool whose threads wait for work
LEAST_PIECE = 10.0  # µs of onnxruntime's own pieces
# Operators whose kernels in onnxruntime 1.31 were seen to wake a second thread (bench/shared_nodes.py looks). Not among
# them: Pad, Slice, Sum, Where, InstanceNormalization, and a Transpose of more than one axis, which no step here has.
SHARED = {
    "Add", "AveragePool", "Concat", "Conv", "ConvTranspose", "Div", "Erf", "Expand", "FusedConv", "FusedGemm",
    "FusedMatMul", "Gather", "Gelu", "Gemm", "GlobalAveragePool", "LayerNormalization", "MatMul", "MaxPool", "Mul",
    "ReduceMean", "ReduceSum", "Relu", "Sigmoid", "SimplifiedLayerNormalization", "SkipLayerNormalization", "Softmax",
    "Split", "Sub", "Tanh", "Transpose",
}  # fmt: skip
MORE = ("unet", "wavenet", "densenet", "densenet121", "volumes")  # of workers/convolutional.py
TARGET = 10.0  # on 16 cores
BETWEEN = "between nodes"


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


def least(call: dict, cores: int) -> float:
    """µs of one call if its work were divided without a rest: it stays on one core, or every part wakes its cores."""
    if call["op"] == BETWEEN:
        return call["us"]
    return min(call["us"], call["us"] / cores + WAKE * max(1, len(call["parts"])))


def cut(op: str, us: float) -> dict:
    """A node of onnxruntime as a call with pieces."""
    count = min(128, int(us / LEAST_PIECE)) if op in SHARED else 1
    return {"op": op, "us": us, "parts": [[us / count] * count] if count > 1 else []}


def metered(model: str, batch: str, loss: str) -> list[dict]:
    """The calls of our operators in one step.

    Of each piece the quickest time counts: the first steps allocate, and a machine does other things.
    """
    import numpy as np
    import onnx
    from profiled import turns

    import onnxgrad

    log = Path(os.environ["ONNXGRAD_PIECES"])
    with np.load(batch) as data:
        x, y = data["x"], data["y"]
    trainer = onnxgrad.Trainer(onnx.load(model), loss=loss, threads=1)
    found = []
    for _ in turns():
        log.write_text("")
        trainer.step(x, y)
        calls = [json.loads(line) for line in log.read_text().splitlines()]
        calls = [_apart(c) for c in calls]
        found = [_quicker(a, b) for a, b in zip(found or calls, calls, strict=True)]
    return found


def _apart(call: dict) -> dict:
    """With the time outside of pieces by itself."""
    return {**call, "serial": call["us"] - sum(map(sum, call["parts"]))}


def _quicker(a: dict, b: dict) -> dict:
    """The same call of two steps: of each piece, and of what is serial, the shorter time."""
    pairs = zip(a["parts"], b["parts"], strict=True)
    parts = [[*map(min, one, other)] for one, other in pairs]
    serial = min(a["serial"], b["serial"])
    return {"op": a["op"], "us": serial + sum(map(sum, parts)), "serial": serial, "parts": parts}


def calls_of(model: str, batch: str, loss: str) -> list[dict]:
    """Everything that one step does, as calls with pieces."""
    from profiled import profile

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "pieces.jsonl")
        command = [sys.executable, __file__, model, batch, "--loss", loss, "--meter"]
        environment = {**os.environ, "ONNXGRAD_PIECES": str(log)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        ours = json.loads(done.stdout)
    found = profile(model, batch, loss)
    own = {c["op"] for c in ours}
    others = [cut(n.op, n.us) for n in found.nodes if n.op not in own]
    between = {"op": BETWEEN, "us": found.between, "parts": []}
    count = max(1, int(found.optimizer / LEAST_PIECE))
    optimizer = {
        "op": "optimizer",
        "us": found.optimizer,
        "parts": [[found.optimizer / count] * count],
    }
    return [*ours, *others, optimizer, between]


def judged(name: str, calls: list[dict]) -> dict:
    """Predicted speed-ups by cores, and what keeps 16 cores waiting."""
    total = sum(c["us"] for c in calls)
    speed = {cores: total / sum(predicted(c, cores) for c in calls) for cores in CORES}
    lost = defaultdict(float)
    for c in calls:
        lost[c["op"]] += predicted(c, 16) - c["us"] / 16
    worst = sorted(lost.items(), key=lambda item: -item[1])[:3]
    most = {cores: total / sum(least(c, cores) for c in calls) for cores in CORES}
    return {"name": name, "ms": total / 1e3, "calls": len(calls), "speed_up": speed, "most": most,
            "worst": [[op, us / 1e3] for op, us in worst]}  # fmt: skip


def show(row: dict) -> None:
    speeds = "  ".join(f"{cores}: {x:5.2f}" for cores, x in row["speed_up"].items())
    worst = ", ".join(f"{op} {ms:.2f} ms" for op, ms in row["worst"])
    verdict = "met" if row["speed_up"][16] >= TARGET else "MISSED"
    print(
        f"{row['name']:22} {row['ms']:7.1f} ms on one core; faster on {speeds} cores ({verdict}; at most "
        f"{row['most'][16]:.1f} by these nodes); 16 wait for {worst}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?")
    parser.add_argument("batch", nargs="?")
    parser.add_argument("--loss", default="cross_entropy")
    parser.add_argument("--meter", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="*", help="of the exported networks")
    parser.add_argument("--torch", help="a Python that has PyTorch, to export what is missing")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    if arguments.meter:
        print(json.dumps(metered(arguments.model, arguments.batch, arguments.loss)))
        return
    rows = []
    for name, folder in steps(arguments).items():
        calls = calls_of(str(folder / "model.onnx"), str(folder / "batch.npz"), arguments.loss)
        rows.append(judged(name, calls))
        show(rows[-1])
    mean = math.exp(sum(math.log(r["speed_up"][16]) for r in rows) / len(rows))
    least = min(rows, key=lambda r: r["speed_up"][16])
    print(
        f"16 cores: geometric mean {mean:.1f}, least {least['speed_up'][16]:.1f} ({least['name']})"
    )
    if arguments.output:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n")


def steps(arguments) -> dict[str, Path]:
    """Folders with a model and its batch, by name."""
    if arguments.model:
        return {Path(arguments.model).stem: Path(arguments.model).parent}
    from exported import EXPORTS, NAMES, exported

    wanted = arguments.only or [*NAMES, *MORE]
    if arguments.torch:
        exported(arguments.torch, wanted, ["torchscript"])
    return {name: EXPORTS / name / "torchscript" for name in wanted}


if __name__ == "__main__":
    main()
