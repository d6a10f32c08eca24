"""Two builds of onnxgrad, kernel by kernel: another commit, another compiler, a wheel.

    python bench/builds.py /path/to/its/python [--only ConvGrad LSTMGrad] [--seconds 2] [--least 0.97] [--list FILE]

Both are asked through the NumPy host on one thread, by the lines of bench/lines.py that both have. They take turns; the
ratio is the other's best processor time of a round over ours, the median of the rounds: above 1, ours is quicker.
A line below `--least` is measured a second time, with four times the rounds; the command fails where it stays below.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from lines import BENCHES, Bench
from run import time_text, write_line
from worker import Worker

ROUNDS = 9
WHAT = "import onnxgrad; from onnxgrad import _native; print(onnxgrad.__file__, _native.instruction_set())"


def differs(first: Path, second: Path) -> bool:
    """Whether an output is off by more than 1e-4 of its largest number."""
    with np.load(first) as one, np.load(second) as two:
        return any(
            np.abs(one[name] - two[name]).max(initial=0)
            > 1e-4 * np.abs(one[name]).max(initial=1e-30)
            for name in one.files
        )


def compare(line: Bench, workers: list[Worker], seconds: float, rounds: int) -> dict | None:
    """Best times and the ratio; None where one of the two has no such operator."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_line(line, folder)
        if any("error" in w.ask(prepare=name, threads=1) for w in workers):
            return None
        files = [folder / f"{i}.npz" for i in range(2)]
        for worker, file in zip(workers, files, strict=True):
            worker.ask(result=str(file))
        wrong = differs(*files)
        times = [
            [min(w.times(seconds / rounds / 2, "cpu")) for w in workers] for _ in range(rounds)
        ]
    ratio = float(np.median([other / ours for ours, other in times]))
    ours, other = (min(t) for t in zip(*times, strict=True))
    return {"ours": ours, "other": other, "ratio": ratio, "differs": wrong}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", type=Path, help="the interpreter that has the other build")
    parser.add_argument("--only", nargs="*", help="operators to run")
    parser.add_argument("--list", type=Path, help="a file with lines to run: 'ReluGrad | 4 M'")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--least", type=float, default=0.97)
    options = parser.parse_args()
    chosen = [b for b in BENCHES if not options.only or b.op in options.only]
    if options.list:
        wanted = set(options.list.read_text().splitlines())
        chosen = [b for b in chosen if f"{b.op} | {b.title}" in wanted]
    interpreters = [sys.executable, options.python]
    for title, python in zip(("ours", "other"), interpreters, strict=True):
        print(f"{title}: {subprocess.check_output([python, '-c', WHAT], text=True).strip()}")
    workers = [Worker(python, "numpy_host.py") for python in interpreters]
    ratios, below = [], []
    print(f"{'operator':<30}{'shape':<36}{'ours':>10}{'other':>10}{'ratio':>7}", flush=True)
    for line in chosen:
        found = compare(line, workers, options.seconds, ROUNDS)
        if found and found["ratio"] < options.least:
            found = compare(line, workers, 4 * options.seconds, 4 * ROUNDS)
        if not found:
            print(f"{line.op:<30}{line.title:<36}{'not in both':>27}", flush=True)
            continue
        ratios.append(found["ratio"])
        bad = found["ratio"] < options.least
        below += [line] if bad else []
        mark = (" ✗" if bad else "") + (" results differ" if found["differs"] else "")
        times = "".join(f"{time_text(found[w] * 1e3):>10}" for w in ("ours", "other"))
        print(f"{line.op:<30}{line.title:<36}{times}{found['ratio']:>7.3f}{mark}", flush=True)
    mean = float(np.exp(np.mean(np.log(ratios)))) if ratios else float("nan")
    print(f"{len(ratios)} lines, {len(below)} below {options.least}; geometric mean {mean:.3f}")
    return int(bool(below))


if __name__ == "__main__":
    sys.exit(main())
