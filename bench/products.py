"""Linear layers at the shapes of transformer steps: ours, MLAS (onnxruntime) and PyTorch, in GFLOP/s on one thread.

    python bench/products.py [--torch python] [--seconds 0.3]

Processor time, so that a busy machine disturbs little. `graph/patterns/linear.py` states
which layers become our operator.
"""

from __future__ import annotations

import argparse
import inspect
import json
import subprocess
import time

# rows, K, N
SHAPES = [
    (512, 768, 768), (512, 768, 3072), (512, 3072, 768), (1024, 256, 768), (1024, 256, 1024), (1024, 1024, 256),
    (1024, 256, 8000), (580, 192, 576), (580, 192, 768), (580, 768, 192), (4096, 64, 256), (64, 64, 64),
]  # fmt: skip
KINDS = ("X·W + B", "dY·Wᵀ", "Xᵀ·dY and ΣdY")

_TORCH = """
import json, sys, time, torch
torch.set_num_threads(1)
{best}
rows = []
for m, k, n in {shapes}:
    x, w, b, dy = torch.randn(m, k), torch.randn(k, n), torch.randn(n), torch.randn(m, n)
    calls = (lambda: torch.addmm(b, x, w), lambda: dy @ w.t(), lambda: (x.t() @ dy, dy.sum(0)))
    rows.append([best(c, {seconds}) for c in calls])
print(json.dumps(rows))
"""


def best(call, seconds):
    """The least processor time of a call."""
    call()
    least, begin, count = 1e9, time.process_time(), 0
    while count < 3 or time.process_time() - begin < seconds:
        start = time.process_time()
        call()
        least, count = min(least, time.process_time() - start), count + 1
    return least


def ours(seconds: float) -> list[list[float]]:
    import numpy as np

    from onnxgrad import kernels

    kernels.set_num_threads(1)
    rows, rng = [], np.random.default_rng(0)
    for m, k, n in SHAPES:
        x, w, b, dy = (
            rng.normal(size=s).astype(np.float32) for s in ((m, k), (k, n), (n,), (m, n))
        )
        calls = (
            lambda x=x, w=w, b=b: kernels.linear_training(x, w, b),
            lambda x=x, w=w, dy=dy: kernels.linear_grad(dy, x, w, outputs=("dX",)),
            lambda x=x, w=w, dy=dy: kernels.linear_grad(dy, x, w, outputs=("dW", "dB")),
        )
        rows.append([best(c, seconds) for c in calls])
    return rows


def stock(seconds: float) -> list[list[float]]:
    """The nodes that stand in the gradient without our operator."""
    import numpy as np
    import onnx
    import onnxruntime

    texts = (
        "(float[M, K] x, float[K, N] w, float[N] b) => (float[M, N] y) { m = MatMul(x, w)  y = Add(m, b) }",
        "(float[M, N] x, float[K, N] w) => (float[M, K] y) { y = Gemm<transB = 1>(x, w) }",
        "(float[M, K] x, float[M, N] w) => (float[K, N] y, float[N] s) "
        "{ y = Gemm<transA = 1>(x, w)  a = Constant<value = int64[1] {0}>()  s = ReduceSum<keepdims = 0>(w, a) }",
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    head = '<ir_version: 8, opset_import: ["" : 17]> net '
    models = [onnx.parser.parse_model(head + t).SerializeToString() for t in texts]
    sessions = [onnxruntime.InferenceSession(m, options) for m in models]
    rows, rng = [], np.random.default_rng(0)
    for m, k, n in SHAPES:
        shapes = (
            {"x": (m, k), "w": (k, n), "b": (n,)},
            {"x": (m, n), "w": (k, n)},
            {"x": (m, k), "w": (m, n)},
        )
        row = []
        for session, inputs in zip(sessions, shapes, strict=True):
            feeds = {name: rng.normal(size=s).astype(np.float32) for name, s in inputs.items()}
            row.append(best(lambda s=session, f=feeds: s.run(None, f), seconds))
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", help="a Python that has PyTorch")
    parser.add_argument("--seconds", type=float, default=0.3)
    arguments = parser.parse_args()
    found = {"ours": ours(arguments.seconds), "MLAS": stock(arguments.seconds)}
    if arguments.torch:
        program = _TORCH.format(
            best=inspect.getsource(best), shapes=SHAPES, seconds=arguments.seconds
        )
        done = subprocess.run(
            [arguments.torch, "-c", program], check=True, capture_output=True, text=True
        )
        found["PyTorch"] = json.loads(done.stdout)
    print(f"{'rows, K, N':>16}  " + "  ".join(f"{k + ': ' + ' / '.join(found):>34}" for k in KINDS))
    for i, (m, k, n) in enumerate(SHAPES):
        flops = 2 * m * k * n / 1e9
        cells = [
            " / ".join(f"{flops / found[who][i][kind]:6.1f}" for who in found) for kind in range(3)
        ]
        print(f"{m:5} {k:4} {n:4}  " + "  ".join(f"{c:>34}" for c in cells))


if __name__ == "__main__":
    main()
