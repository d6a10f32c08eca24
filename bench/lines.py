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

import numpy as np
import real_models
import recurrent

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
    torch_setup: str = ""  # run once before the expression
    without: tuple[
        str, ...
    ] = ()  # contenders that would take minutes for one call, or do something else
    derive: Callable[[dict], dict] | None = None  # more inputs, computed from the drawn ones
    stock: str | None = (
        None  # onnxruntime's own operator with the same first outputs, if it has one
    )


_SETTINGS = {f.name for f in dataclasses.fields(Bench)} - {
    "op",
    "title",
    "torch",
    "inputs",
    "attributes",
}


def bench(op: str, title: str, torch: str | None, **arguments) -> Bench:
    """A line: samples are inputs, settings are settings, and what is left are attributes."""
    settings = {k: arguments.pop(k) for k in _SETTINGS & set(arguments)}
    inputs = {k: v for k, v in arguments.items() if callable(v)}
    attributes = {k: v for k, v in arguments.items() if k not in inputs}
    return Bench(op, title, torch, inputs, attributes, **settings)


N = 4 << 20  # 4 M floats
aten = "torch.ops.aten"
_rows, _slab = (4096, 1024), (64, 1024, 64)


def _stream(op, title, torch, **arguments):
    return bench(op, title, torch and f"{aten}.{torch}", share="stream", **arguments)


def _pointwise(op, second, sample, torch, target):
    """4 M floats: dX = f(dY, second)."""
    return _stream(op, "4 M", torch, dY=normal(N), **{second: sample}, target=target)


def _bias(op, torch, target):
    """About 4 M floats in rows of 768, as in a transformer."""
    return _stream(
        op,
        "5461 × 768",
        torch,
        dY=normal(5461, 768),
        X=normal(5461, 768),
        B=normal(768),
        target=target,
    )


def _softmax(op, title, y, torch, *, shape=_rows, axis=-1, target=None):
    attributes = {} if axis == -1 else {"axis": axis}
    return _stream(
        op, title, torch, dY=normal(*shape), Y=y(*shape, axis=axis), target=target, **attributes
    )


def _conv(title, n, c, m, size, kernel, *, stride=1, pad=0, group=1, target):
    """All three gradients of one convolution; `kernel`, `stride` and `pad` along every spatial dim."""
    rank = len(size)
    out = [(i + 2 * pad - kernel) // stride + 1 for i in size]
    flops = 4.0 * n * m * (c // group) * kernel**rank * math.prod(out)
    torch = (
        f"{aten}.convolution_backward(dY, X, W, [{m}], {[stride] * rank}, {[pad] * rank}, "
        f"{[1] * rank}, False, {[0] * rank}, {group}, [True, True, True])"
    )
    return bench(
        "ConvGrad", title, torch, share="fma", flops=flops, target=target,
        dY=normal(n, m, *out), X=normal(n, c, *size), W=normal(m, c // group, *[kernel] * rank),
        strides=[stride] * rank, pads=[pad] * 2 * rank, dilations=[1] * rank, group=group,
        kernel_shape=[kernel] * rank,
    )  # fmt: skip


def _conv_training(title, n, c, m, size, kernel, *, stride=1, pad=0, group=1):
    """The forward convolution, without the peer whose weights are constant: in training they are not."""
    rank = len(size)
    out = [(i + 2 * pad - kernel) // stride + 1 for i in size]
    torch = f"{aten}.convolution(X, W, B, {[stride] * rank}, {[pad] * rank}, {[1] * rank}, False, {[0] * rank}, {group})"
    return bench(
        "ConvTraining", title, torch, share="fma", target=1.0, stock="Conv", without=("onnxruntime, constant weights",),
        flops=2.0 * n * m * (c // group) * kernel**rank * math.prod(out),
        X=normal(n, c, *size), W=normal(m, c // group, *[kernel] * rank), B=normal(m),
        strides=[stride] * rank, pads=[pad] * 2 * rank, dilations=[1] * rank, group=group,
        kernel_shape=[kernel] * rank,
    )  # fmt: skip


def _attention(title, n, h, s, d, causal=0):
    """Forward and all three gradients, beside PyTorch's own attention that needs no matrix of scores either."""
    samples = {name: normal(n, h, s, d) for name in "QKV"}
    products = 2.0 * n * h * s * s * d * (0.5 if causal else 1)
    flash = f"{aten}._scaled_dot_product_flash_attention_for_cpu"
    forward = f"{flash}(Q, K, V, 0.0, {bool(causal)})"
    backward = f"{flash}_backward(dY, Q, K, V, kept[0], kept[1], 0.0, {bool(causal)})"
    yield bench("AttentionTraining", title, forward, share="fma", flops=2 * products, target=1.0,
                causal=causal, **samples)  # fmt: skip
    yield bench("AttentionGrad", title, backward, torch_setup=f"kept = {forward}", share="fma", flops=5 * products,
                target=1.0, causal=causal, dY=normal(n, h, s, d), derive=_attended(causal),
                outputs=("dQ", "dK", "dV"), **samples)  # fmt: skip


def _linear(title, rows, depth, columns):
    """X·W + B, and its three gradients."""
    given = {"X": normal(rows, depth), "W": normal(depth, columns)}
    flops = 2.0 * rows * depth * columns
    yield bench("LinearTraining", title, "torch.addmm(B, X, W)", share="fma", flops=flops, target=1.0,
                B=normal(columns), **given)  # fmt: skip
    yield bench("LinearGrad", title, "(dY @ W.t(), X.t() @ dY, dY.sum(0))", share="fma", flops=2 * flops, target=1.0,
                dY=normal(rows, columns), **given)  # fmt: skip


def _attended(causal):
    """Y and LSE as AttentionTraining gives them."""

    def derive(inputs):
        q, k, v = (inputs[n].astype(np.float64) for n in "QKV")
        scores = q @ np.swapaxes(k, 2, 3) / np.sqrt(q.shape[3])
        if causal:
            scores = np.where(np.tri(scores.shape[2], dtype=bool), scores, -np.inf)
        greatest = scores.max(-1, keepdims=True)
        e = np.exp(scores - greatest)
        total = e.sum(-1, keepdims=True)
        kept = {"Y": e / total @ v, "LSE": np.concatenate([greatest, np.log(total)], -1)}
        return {name: a.astype(np.float32) for name, a in kept.items()}

    return derive


_SOFTMAX = "_softmax_backward_data.out(dY, Y, {axis}, torch.float32, grad_input=out)"
_LOG_SOFTMAX = "_log_softmax_backward_data.out(dY, Y, {axis}, torch.float32, out=out)"
_LAST, _MIDDLE = "4096 × 1024, last axis", "64 × 1024 × 64, axis 1"


def _packed(op: str, factor: str, kind: str) -> Bench:
    """512 rows against a matrix of 2048 × 2048 in 4 bits."""
    size, rows = 2048, 512
    codes = _s.integers(size * size // 2, low=0, high=256, dtype=np.uint8)
    scales = uniform(size * size // 64, low=0.01, high=0.1)
    inputs = {factor: normal(rows, size), "B": codes, kind: scales}
    attributes = {"K": size, "N": size, "block_size": 64}
    title, flops = "512 rows, 2048 × 2048 in 4 bits", 2.0 * rows * size * size
    return Bench(op, title, None, inputs, attributes, share="fma", flops=flops)


def _vocabulary() -> Bench:
    """512 rows of 512 numbers, 32,000 words."""
    given = {
        "X": normal(512, 512),
        "labels": _s.integers(512, low=0, high=32_000),
        "W": normal(512, 32_000, spread=0.05),
    }
    return bench(
        "LinearCrossEntropy",
        "512 rows of 512, 32,000 words",
        "torch.autograd.grad(torch.nn.functional.cross_entropy(x @ W, labels), x)[0]",
        torch_setup="x = X.requires_grad_()",
        share="fma",
        flops=4.0 * 512 * 512 * 32_000,
        target=1.0,
        outputs=("loss", "dX"),
        **given,
    )


def _packed_vocabulary() -> Bench:
    """The same with words in 4 bits."""
    codes = _s.integers(32_000 * 512 // 2, low=0, high=256, dtype=np.uint8)
    inputs = {
        "X": normal(512, 512),
        "labels": _s.integers(512, low=0, high=32_000),
        "B": codes,
        "scales": uniform(32_000 * 8, low=0.001, high=0.01),
    }
    attributes = {"K": 512, "N": 32_000, "block_size": 64}
    return Bench(
        "MatMulNBitsCrossEntropy",
        "512 rows of 512, 32,000 words in 4 bits",
        None,
        inputs,
        attributes,
        share="fma",
        flops=4.0 * 512 * 512 * 32_000,
    )


# fmt: off
BENCHES = [
    _vocabulary(),
    _packed_vocabulary(),
    _packed("MatMulNBitsTraining", "A", "scales"),
    _packed("MatMulNBitsGrad", "dY", "scales"),
    _packed("MatMulBnb4Training", "A", "absmax"),
    _packed("MatMulBnb4Grad", "dY", "absmax"),
    _pointwise("ReluGrad", "X", normal(N), "threshold_backward.grad_input(dY, X, 0, grad_input=out)", 0.95),
    _pointwise("SigmoidGrad", "Y", uniform(N, low=0), "sigmoid_backward.grad_input(dY, Y, grad_input=out)", 0.95),
    _pointwise("TanhGrad", "Y", uniform(N), "tanh_backward.grad_input(dY, Y, grad_input=out)", 0.95),
    _pointwise("LeakyReluGrad", "Y", normal(N), "leaky_relu_backward.grad_input(dY, Y, 0.01, True, grad_input=out)", 0.95),
    _stream("ClipGrad", "4 M, Relu6", "hardtanh_backward.grad_input(dY, X, 0.0, 6.0, grad_input=out)",
            dY=normal(N), X=normal(N), min=_s.exactly(np.float32(0)), max=_s.exactly(np.float32(6)), target=0.95),
    _stream("FakeQuant", "64 × 64 × 32 × 32, per channel", "fake_quantize_per_channel_affine_cachemask(input, scale, z, 1, -128, 127)[0]",
            torch_setup="z = torch.zeros(64, dtype=torch.int32)",
            input=normal(64, 64, 32, 32), scale=uniform(64, low=0.01, high=0.05), zero_point=_s.zeros(64), quant_min=-128, quant_max=127, axis=1, outputs=("output",), target=1),
    _stream("LearnedFakeQuantGrad", "64 × 64 × 32 × 32, per channel", "_fake_quantize_learnable_per_channel_affine_backward(dY, input, scale, z, 1, -128, 127, 1.0)[0]",
            torch_setup="z = torch.zeros(64)",
            dY=normal(64, 64, 32, 32), input=normal(64, 64, 32, 32), scale=uniform(64, low=0.01, high=0.05), quant_min=-128, quant_max=127, axis=1, outputs=("dX", "dscale"), target=1),
    _stream("QuantObserver", "64 × 64 × 32 × 32", None, X=normal(64, 64, 32, 32), low=_s.exactly(np.float32(-3)), high=_s.exactly(np.float32(3)),
            observe=_s.exactly(np.array([1])), quant_min=-128, quant_max=127, target=1),
    _stream("FakeQuantGrad", "4 M", None, dY=normal(N), gradient_mask=lambda rng: rng.random(N) < 0.9, target=0.95),
    _pointwise("QuickGeluGrad", "X", normal(N), None, 1.5),
    _pointwise("HardSwishGrad", "X", normal(N), "hardswish_backward(dY, X)", 0.95),
    _pointwise("GeluGrad", "X", normal(N), "gelu_backward.grad_input(dY, X, grad_input=out)", 1.4),
    _pointwise("FastGeluGrad", "X", normal(N), "gelu_backward.grad_input(dY, X, approximate='tanh', grad_input=out)", 3.5),
    _bias("BiasGeluGrad_dX", "gelu_backward.grad_input(dY, X + B, grad_input=out)", 1.4),
    _bias("BiasFastGeluGrad_dX", "gelu_backward.grad_input(dY, X + B, approximate='tanh', grad_input=out)", 3.5),
    _softmax("SoftmaxGrad_13", _LAST, simplex, _SOFTMAX.format(axis=-1), target=1.3),
    _softmax("SoftmaxGrad_13", _MIDDLE, simplex, _SOFTMAX.format(axis=1), shape=_slab, axis=1, target=3),
    _softmax("SoftmaxGrad", "4096 × 1024", simplex, _SOFTMAX.format(axis=-1)),
    _softmax("LogSoftmaxGrad_13", _LAST, log_simplex, _LOG_SOFTMAX.format(axis=-1), target=1.3),
    _softmax("LogSoftmaxGrad_13", _MIDDLE, log_simplex, _LOG_SOFTMAX.format(axis=1), shape=_slab, axis=1, target=3),
    _softmax("LogSoftmaxGrad", "4096 × 1024", log_simplex, _LOG_SOFTMAX.format(axis=-1)),
    bench("GeluGrad", "16 elements", f"{aten}.gelu_backward(dY, X)", dY=normal(16), X=normal(16), target=1.0),
    bench("ReluGrad", "16 elements", f"{aten}.threshold_backward(dY, X, 0)", dY=normal(16), X=normal(16), target=1.0),
    _conv("8×64×56², 3×3", 8, 64, 64, (56, 56), 3, pad=1, target=1.5),
    _conv("8×128×28², 3×3", 8, 128, 128, (28, 28), 3, pad=1, target=1.5),
    _conv("8×256×14², 3×3", 8, 256, 256, (14, 14), 3, pad=1, target=1.5),
    _conv("8×512×7², 3×3", 8, 512, 512, (7, 7), 3, pad=1, target=1.1),
    _conv("8×128×56², 3×3, stride 2", 8, 128, 128, (56, 56), 3, stride=2, pad=1, target=1.05),
    _conv("8×3×224² to 64, 7×7, stride 2", 8, 3, 64, (224, 224), 7, stride=2, pad=3, target=1.0),
    _conv("8×64×56² to 256, 1×1", 8, 64, 256, (56, 56), 1, target=1.0),
    _conv("4×128×16², 7×7, depthwise", 4, 128, 128, (16, 16), 7, pad=3, group=128, target=1.5),
    _conv("8×128×28², 3×3, depthwise", 8, 128, 128, (28, 28), 3, pad=1, group=128, target=1.7),
    _conv("8×64×4096, 9", 8, 64, 64, (4096,), 9, pad=4, target=1.0),
    _conv("8×16×16×32², 3×3×3", 8, 16, 16, (16, 32, 32), 3, pad=1, target=1.0),
    _conv_training("8×64×56², 3×3", 8, 64, 64, (56, 56), 3, pad=1),
    _conv_training("8×256×14², 3×3", 8, 256, 256, (14, 14), 3, pad=1),
    _conv_training("16×512×4², 3×3", 16, 512, 512, (4, 4), 3, pad=1),
    _conv_training("8×128×56², 3×3, stride 2", 8, 128, 128, (56, 56), 3, stride=2, pad=1),
    _conv_training("8×3×224² to 64, 7×7, stride 2", 8, 3, 64, (224, 224), 7, stride=2, pad=3),
    _conv_training("64×32×14² to 64, 5×5", 64, 32, 64, (14, 14), 5, pad=2),
    _conv_training("8×64×56² to 256, 1×1", 8, 64, 256, (56, 56), 1),
    _conv_training("4×128×16², 7×7, depthwise", 4, 128, 128, (16, 16), 7, pad=3, group=128),
    _conv_training("8×128×28², 3×3, depthwise", 8, 128, 128, (28, 28), 3, pad=1, group=128),
    _conv_training("16×128×64², 3×3, depthwise, stride 2", 16, 128, 128, (64, 64), 3, stride=2, pad=1, group=128),
    _conv_training("8×64×4096, 9", 8, 64, 64, (4096,), 9, pad=4),
    _conv_training("16×32×2000 to 64, 9, stride 2", 16, 32, 64, (2000,), 9, stride=2, pad=4),
    _conv_training("8×16×16×32², 3×3×3", 8, 16, 16, (16, 32, 32), 3, pad=1),
    _conv("1×64×56², 3×3", 1, 64, 64, (56, 56), 3, pad=1, target=1.2),
    _conv("1×128×28², 3×3", 1, 128, 128, (28, 28), 3, pad=1, target=1.2),
    _conv("1×256×14², 3×3", 1, 256, 256, (14, 14), 3, pad=1, target=1.2),
    *recurrent.lines(bench, _s),
    bench("SeededDropout", "4 M", "torch.native_dropout(X, 0.1, True)", X=normal(N), key=_s.exactly([1, 2]), ratio=0.1),
    *_linear("512 × 768 by 3072", 512, 768, 3072),
    *_linear("580 × 192 by 768", 580, 192, 768),
    *_linear("1024 × 256 by 1024", 1024, 256, 1024),
    bench("GeluTraining", "4 M", "torch.nn.functional.gelu(X)", X=normal(N)),
    bench("GateTraining", "2×64×32,000", "torch.nn.functional.glu(X, 1)", X=normal(2, 64, 32_000), form="linear"),
    bench("GateGrad", "2×64×32,000", "torch.ops.aten.glu_backward(dY, X, 1)", dY=normal(2, 32, 32_000),
          X=normal(2, 64, 32_000), form="linear"),
    *_attention("4×12 heads of 64, 128 tokens", 4, 12, 128, 64),
    *_attention("4×4 heads of 64, 256 tokens, causal", 4, 4, 256, 64, causal=1),
    *real_models.lines(bench, _s),
]
# fmt: on
