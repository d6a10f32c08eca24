"""Memory of attention, forward and backward, by the number of tokens: it must grow with S, not with S².

    python bench/attention_memory.py [--output attention_memory.json]

One head of 64 on one thread, AttentionTraining and AttentionGrad on NumPy arrays, each S in a process of its own: what
the process holds at its peak beyond what it held when inputs and outputs were there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

LENGTHS = (512, 2048, 8192)


def peak(length: int) -> dict:
    """In this process: megabytes of the tensors, and of working memory beyond them."""
    import numpy as np

    from onnxgrad import kernels

    kernels.set_num_threads(1)
    shape = (1, 1, length, 64)
    q, k, v, dy = (np.full(shape, 0.01 * i, np.float32) for i in range(1, 5))
    y, dq, dk, dv = (np.zeros(shape, np.float32) for _ in range(4))
    lse = np.zeros((1, 1, length, 2), np.float32)
    kernels.relu_grad(q, q)  # what a first call loads
    before = _resident("VmRSS")
    kernels.attention_training(q, k, v, out={"Y": y, "LSE": lse})
    gradients = {"dQ": dq, "dK": dk, "dV": dv}
    kernels.attention_grad(dy, y, lse, q, k, v, outputs=tuple(gradients), out=gradients)
    tensors = (8 * q.nbytes + lse.nbytes) / 2**20
    return {"tokens": length, "tensors_mb": tensors, "beyond_mb": _resident("VmHWM") - before}


def _resident(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise LookupError(field)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(peak(arguments.one)))
        return
    rows = []
    for length in LENGTHS:
        command = [sys.executable, __file__, "--one", str(length)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout))
        matrix = length * length * 4 / 2**20
        print(
            f"{length:5} tokens: tensors {rows[-1]['tensors_mb']:6.1f} MB, beyond them {rows[-1]['beyond_mb']:6.1f} MB "
            f"(a matrix of scores would take {matrix:.0f} MB)"
        )
    if arguments.output:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
