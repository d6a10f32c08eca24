"""How the cost of LSTM and GRU grows with directions and lengths: each call against one direction with full lengths,
alternated in one run. `.venv/bin/python bench/recurrent_scaling.py [--seconds 4] [--output FILE.json]`.

Two directions do twice the work of one. Rows with lengths do the work of their steps: `work` is the sum of the lengths
over S·N, and `cost` the time over that of full lengths.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from onnxgrad import kernels

S, N, I, H = 64, 32, 128, 128  # noqa: E741
GATES = {"lstm": 4, "gru": 3}
KEPT = {"lstm": ("HAll", "CAll", "IOFC"), "gru": ("HAll", "ZRH")}
ROUNDS = 8


def calls(op: str, directions: int, lengths: np.ndarray | None):
    """The forward operator and its gradient as functions without arguments, into the same memory each time."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return (rng.normal(size=shape) / H**0.5).astype(np.float32)

    gates = GATES[op] * H
    inputs = dict(X=normal(S, N, I), W=normal(directions, gates, I), R=normal(directions, gates, H))
    if lengths is not None:
        inputs["SL"] = lengths
    attributes = {"direction": "bidirectional"} if directions == 2 else {}
    forward, gradient = getattr(kernels, f"{op}_training"), getattr(kernels, f"{op}_grad")
    states = forward(**inputs, **attributes)._asdict()
    kept = {name: states[name] for name in KEPT[op]}
    kept["grad_HAll"] = normal(*states["HAll"].shape)
    wanted = ("dX", "dW", "dR", "dB")
    results = gradient(**inputs, **kept, **attributes, outputs=wanted)._asdict()
    results = {name: results[name] for name in wanted}
    return {
        "Training": lambda: forward(**inputs, **attributes, out=states),
        "Grad": lambda: gradient(**inputs, **kept, **attributes, outputs=wanted, out=results),
    }


def drawn_lengths(share: float) -> np.ndarray:
    """Lengths between 0 and S, unsorted, whose sum is about share·S·N."""
    rng = np.random.default_rng(1)
    width = min(share, 1 - share)
    return np.round(rng.uniform(share - width, share + width, N) * S).astype(np.int32)


def best_times(functions: dict, seconds: float) -> dict:
    """The best time of each, taken in turns."""
    best = dict.fromkeys(functions, np.inf)
    for _ in range(ROUNDS):
        for name, call in functions.items():
            end = time.perf_counter() + seconds / ROUNDS / len(functions)
            while (begin := time.perf_counter()) < end:
                call()
                best[name] = min(best[name], time.perf_counter() - begin)
    return best


def measure(op: str, threads: int, seconds: float) -> list[dict]:
    kernels.set_num_threads(threads)
    settings = {"one direction": (1, None, 1.0), "two directions": (2, None, 2.0)}
    for share in (0.75, 0.5, 0.25):
        lengths = drawn_lengths(share)
        work = float(lengths.sum()) / (S * N)
        settings[f"lengths, {work:.2f} of the steps"] = (1, lengths, work)
    made = {name: calls(op, d, lengths) for name, (d, lengths, _) in settings.items()}
    rows = []
    for kind in ("Training", "Grad"):
        best = best_times({name: made[name][kind] for name in made}, seconds)
        for name, (_, _, work) in settings.items():
            cost = best[name] / best["one direction"]
            rows.append(
                dict(op=op.upper() + kind, threads=threads, setting=name, work=round(work, 3),
                     milliseconds=round(best[name] * 1e3, 3), cost=round(cost, 3))
            )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="for each operator and threads")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--output", type=Path, help="write the results there as JSON")
    options = parser.parse_args()
    rows = []
    print(f"S{S} N{N} I{I} H{H}, float32, on NumPy")
    print(f"{'operator':13}{'thr.':>5}  {'setting':30}{'work':>7}{'cost':>7}{'ms':>9}")
    for op in GATES:
        for threads in options.threads:
            for row in measure(op, threads, options.seconds):
                rows.append(row)
                print(f"{row['op']:13}{threads:5}  {row['setting']:30}{row['work']:7.2f}{row['cost']:7.2f}"
                      f"{row['milliseconds']:9.3f}")  # fmt: skip
    if options.output:
        options.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
