"""The benchmark table: one line per claim. An operator adds a line here, and nothing else.

`torch` is what PyTorch calls for the same result, an expression over the inputs by name with `out` the preallocated
result; None where PyTorch has no such operator. `share` says which limit of the machine the line is held against:
"stream" (two reads and one write of the operands) or "fma" (then `flops` counts the operations).
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def _samples():
    """tests/cases/samples.py by itself: the peers' environments have NumPy, but not onnxgrad."""
    spec = importlib.util.spec_from_file_location(
        "samples", ROOT / "tests" / "cases" / "samples.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_s = _samples()
normal, simplex, log_simplex, uniform = _s.normal, _s.simplex, _s.log_simplex, _s.uniform


@dataclasses.dataclass(frozen=True)
class Bench:
    op: str
    title: str
    torch: str | None
    inputs: Mapping[str, Callable]
    attributes: Mapping[str, Any]
    outputs: tuple[str, ...] | None = None
    share: str | None = None
    flops: float = 0.0
    target: float | None = None  # the ratio that is promised at 2 threads

    def __init__(
        self, op, title, torch, *, outputs=None, share=None, flops=0.0, target=None, **arguments
    ):
        inputs = {k: v for k, v in arguments.items() if callable(v)}
        values = dict(
            op=op, title=title, torch=torch, inputs=inputs, outputs=outputs, share=share, flops=flops, target=target,
            attributes={k: v for k, v in arguments.items() if k not in inputs},
        )  # fmt: skip
        for name, value in values.items():
            object.__setattr__(self, name, value)


N = 4 << 20  # 4 M floats
aten = "torch.ops.aten"
_rows, _slab = (4096, 1024), (64, 1024, 64)


def _stream(op, title, torch, **arguments):
    return Bench(op, title, torch, share="stream", **arguments)


def _conv(title, n, c, m, size, kernel, *, stride=1, pad=0, group=1, target):
    """All three gradients of one convolution; `kernel`, `stride` and `pad` along every spatial dim."""
    rank = len(size)
    out = [(i + 2 * pad - kernel) // stride + 1 for i in size]
    flops = 4.0 * n * m * (c // group) * kernel**rank * math.prod(out)
    torch = (
        f"{aten}.convolution_backward(dY, X, W, [{m}], {[stride] * rank}, {[pad] * rank}, "
        f"{[1] * rank}, False, {[0] * rank}, {group}, [True, True, True])"
    )
    return Bench(
        "ConvGrad", title, torch, share="fma", flops=flops, target=target,
        dY=normal(n, m, *out), X=normal(n, c, *size), W=normal(m, c // group, *[kernel] * rank),
        strides=[stride] * rank, pads=[pad] * 2 * rank, dilations=[1] * rank, group=group,
        kernel_shape=[kernel] * rank,
    )  # fmt: skip


BENCHES = [
    _stream(
        "ReluGrad",
        "4 M",
        f"{aten}.threshold_backward.grad_input(dY, X, 0, grad_input=out)",
        dY=normal(N),
        X=normal(N),
        target=0.95,
    ),
    _stream(
        "SigmoidGrad",
        "4 M",
        f"{aten}.sigmoid_backward.grad_input(dY, Y, grad_input=out)",
        dY=normal(N),
        Y=uniform(N, low=0),
        target=0.95,
    ),
    _stream(
        "TanhGrad",
        "4 M",
        f"{aten}.tanh_backward.grad_input(dY, Y, grad_input=out)",
        dY=normal(N),
        Y=uniform(N),
        target=0.95,
    ),
    _stream(
        "LeakyReluGrad",
        "4 M",
        f"{aten}.leaky_relu_backward.grad_input(dY, Y, 0.01, True, grad_input=out)",
        dY=normal(N),
        Y=normal(N),
        target=0.95,
    ),
    _stream("QuickGeluGrad", "4 M", None, dY=normal(N), X=normal(N), target=1.5),
    _stream(
        "GeluGrad",
        "4 M",
        f"{aten}.gelu_backward.grad_input(dY, X, grad_input=out)",
        dY=normal(N),
        X=normal(N),
        target=1.4,
    ),
    _stream(
        "FastGeluGrad",
        "4 M",
        f"{aten}.gelu_backward.grad_input(dY, X, approximate='tanh', grad_input=out)",
        dY=normal(N),
        X=normal(N),
        target=3.5,
    ),
    _stream(
        "BiasGeluGrad_dX",
        "5461 × 768",
        f"{aten}.gelu_backward.grad_input(dY, X + B, grad_input=out)",
        dY=normal(5461, 768),
        X=normal(5461, 768),
        B=normal(768),
        target=1.4,
    ),
    _stream(
        "BiasFastGeluGrad_dX",
        "5461 × 768",
        f"{aten}.gelu_backward.grad_input(dY, X + B, approximate='tanh', grad_input=out)",
        dY=normal(5461, 768),
        X=normal(5461, 768),
        B=normal(768),
        target=3.5,
    ),
    _stream(
        "SoftmaxGrad_13",
        "4096 × 1024, last axis",
        f"{aten}._softmax_backward_data.out(dY, Y, -1, torch.float32, grad_input=out)",
        dY=normal(*_rows),
        Y=simplex(*_rows),
        target=1.3,
    ),
    _stream(
        "SoftmaxGrad_13",
        "64 × 1024 × 64, axis 1",
        f"{aten}._softmax_backward_data.out(dY, Y, 1, torch.float32, grad_input=out)",
        dY=normal(*_slab),
        Y=simplex(*_slab, axis=1),
        axis=1,
        target=3,
    ),
    _stream(
        "SoftmaxGrad",
        "4096 × 1024",
        f"{aten}._softmax_backward_data.out(dY, Y, -1, torch.float32, grad_input=out)",
        dY=normal(*_rows),
        Y=simplex(*_rows),
    ),
    _stream(
        "LogSoftmaxGrad_13",
        "4096 × 1024, last axis",
        f"{aten}._log_softmax_backward_data.out(dY, Y, -1, torch.float32, out=out)",
        dY=normal(*_rows),
        Y=log_simplex(*_rows),
        target=1.3,
    ),
    _stream(
        "LogSoftmaxGrad_13",
        "64 × 1024 × 64, axis 1",
        f"{aten}._log_softmax_backward_data.out(dY, Y, 1, torch.float32, out=out)",
        dY=normal(*_slab),
        Y=log_simplex(*_slab, axis=1),
        axis=1,
        target=3,
    ),
    _stream(
        "LogSoftmaxGrad",
        "4096 × 1024",
        f"{aten}._log_softmax_backward_data.out(dY, Y, -1, torch.float32, out=out)",
        dY=normal(*_rows),
        Y=log_simplex(*_rows),
    ),
    Bench(
        "GeluGrad",
        "16 elements",
        f"{aten}.gelu_backward(dY, X)",
        dY=normal(16),
        X=normal(16),
        target=1.0,
    ),
    Bench(
        "ReluGrad",
        "16 elements",
        f"{aten}.threshold_backward(dY, X, 0)",
        dY=normal(16),
        X=normal(16),
        target=1.0,
    ),
    _conv("8×64×56², 3×3", 8, 64, 64, (56, 56), 3, pad=1, target=1.5),
    _conv("8×128×28², 3×3", 8, 128, 128, (28, 28), 3, pad=1, target=1.5),
    _conv("8×256×14², 3×3", 8, 256, 256, (14, 14), 3, pad=1, target=1.5),
    _conv("8×512×7², 3×3", 8, 512, 512, (7, 7), 3, pad=1, target=1.1),
    _conv("8×128×56², 3×3, stride 2", 8, 128, 128, (56, 56), 3, stride=2, pad=1, target=1.05),
    _conv("8×3×224² to 64, 7×7, stride 2", 8, 3, 64, (224, 224), 7, stride=2, pad=3, target=1.0),
    _conv("8×64×56² to 256, 1×1", 8, 64, 256, (56, 56), 1, target=1.0),
    _conv("8×128×28², 3×3, depthwise", 8, 128, 128, (28, 28), 3, pad=1, group=128, target=1.7),
    _conv("8×64×4096, 9", 8, 64, 64, (4096,), 9, pad=4, target=1.0),
    _conv("8×16×16×32², 3×3×3", 8, 16, 16, (16, 32, 32), 3, pad=1, target=1.0),
    _conv("1×64×56², 3×3", 1, 64, 64, (56, 56), 3, pad=1, target=1.2),
    _conv("1×128×28², 3×3", 1, 128, 128, (28, 28), 3, pad=1, target=1.2),
    _conv("1×256×14², 3×3", 1, 256, 256, (14, 14), 3, pad=1, target=1.2),
]
