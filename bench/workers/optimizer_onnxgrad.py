"""AdamW of onnxgrad alone, on one flat buffer; see protocol.py."""

import json
from pathlib import Path

import numpy as np
from protocol import serve


def prepare(folder, threads):
    from onnxgrad import _native, kernels
    from onnxgrad.train.step.buffers import aligned_zeros

    kernels.set_num_threads(threads)
    count = json.loads(Path(folder, "line.json").read_text())["parameters"]
    p, g, m, v = (aligned_zeros(count, np.float32) for _ in range(4))
    g[:] = np.random.default_rng(0).standard_normal(count, np.float32)
    state = {"step": 0}

    def step():
        state["step"] += 1
        _native.adam_step(
            [p], [g], [m], [v], lr=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8, decay=0.01,
            step=state["step"], decoupled=True,
        )  # fmt: skip

    return step, lambda: {"p": p[:1000]}


if __name__ == "__main__":
    serve(prepare)
