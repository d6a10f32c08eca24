"""The benchmark table: one line per claim. An operator adds a line here, and nothing else.

`torch` is what PyTorch calls for the same result, an expression over the inputs by name with `out` the preallocated
result; None where PyTorch has no such operator. `share` says which limit of the machine the line is held against:
"stream" (two reads and one write of the operands) or "fma" (then `flops` counts the operations).
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]


def _samples():
    """tests/cases/samples.py by itself: the peers' environments have NumPy, but not onnxgrad."""
    spec = importlib.util.spec_from_file_location("samples", ROOT / "tests" / "cases" / "samples.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_s = _samples()
normal, simplex, log_simplex, uniform = _s.normal, _s.simplex, _s.log_simplex, _s.uniform
integers, exactly = _s.integers, _s.exactly


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
    torch_setup: tuple[str, ...] = ()  # statements that prepare what the expression names; not timed

    def __init__(self, op, title, torch, *, outputs=None, share=None, flops=0.0, target=None, torch_setup=(), **arguments):
        inputs = {k: v for k, v in arguments.items() if callable(v)}
        values = dict(
            op=op, title=title, torch=torch, inputs=inputs, outputs=outputs, share=share, flops=flops, target=target,
            torch_setup=tuple(torch_setup), attributes={k: v for k, v in arguments.items() if k not in inputs},
        )  # fmt: skip
        for name, value in values.items():
            object.__setattr__(self, name, value)


N = 4 << 20  # 4 M floats
aten = "torch.ops.aten"
_rows, _slab = (4096, 1024), (64, 1024, 64)


def _stream(op, title, torch, **arguments):
    return Bench(op, title, torch, share="stream", **arguments)


def _max_pool_indices(rng, planes, side, kernel):
    """Random places within windows of stride 2, as MaxPool would give them."""
    half = side // 2
    step = np.arange(half) * 2 - (kernel - 2)
    offset = rng.integers(0, kernel, (2, planes, half, half))
    rows, columns = (np.clip(s, 0, side - 1) for s in (step[:, None] + offset[0], step + offset[1]))
    flat = (np.arange(planes)[:, None, None] * side + rows) * side + columns
    return flat.reshape((8, 64, half, half) if planes == 512 else (4, 64, half, half))


_bert = (8, 128, 768)
LAYER_NORM = [
    _stream("LayerNormalizationGrad", "8 × 128 × 768", f"{aten}.native_layer_norm_backward(Y_grad, X, [768], mean, inv_std_dev, scale, bias, [True] * 3)",
            torch_setup=["bias = torch.zeros(768)"], Y_grad=normal(*_bert), X=normal(*_bert), scale=uniform(768, low=0.5), mean=normal(8, 128, 1, spread=0.1), inv_std_dev=uniform(8, 128, 1, low=0.9, high=1.1), target=1.0),
    _stream("SimplifiedLayerNormalizationGrad", "8 × 128 × 768", None,
            Y_grad=normal(*_bert), X=normal(*_bert), scale=uniform(768, low=0.5), inv_std_var=uniform(8, 128, 1, low=0.9, high=1.1)),
    _stream("InvertibleLayerNormalizationGrad", "8 × 128 × 768", None,
            Y_grad=normal(*_bert), Y=normal(*_bert), scale=uniform(768, low=0.5), bias=normal(768), inv_std_var=uniform(8, 128, 1, low=0.9, high=1.1)),
]  # fmt: skip

_size = "size = tuple(shape.tolist())"
GATHER = [
    _stream("GatherGrad", "4096 tokens of 30522 × 768", f"{aten}.embedding_dense_backward(dY, indices, 30522, -1, False)",
            shape=exactly([30522, 768]), indices=integers(8, 512, high=30522), dY=normal(8, 512, 768), target=1.0),
    _stream("GatherGrad", "1024 tokens of 30522 × 768", f"{aten}.embedding_dense_backward(dY, indices, 30522, -1, False)",
            shape=exactly([30522, 768]), indices=integers(8, 128, high=30522), dY=normal(8, 128, 768), target=1.0),
    _stream("GatherElementsGrad", "1024 × 30522, 16 per row", "torch.zeros(size).scatter_add_(1, indices, dY)", torch_setup=[_size],
            dY=normal(1024, 16), shape=exactly([1024, 30522]), indices=integers(1024, 16, high=30522), axis=1, target=1.0),
    _stream("GatherNDGrad", "153 places of 8 × 128 × 768", "torch.zeros(size).index_put_((indices[:, 0], indices[:, 1]), update, accumulate=True)", torch_setup=[_size],
            shape=exactly([8, 128, 768]), indices=lambda rng: rng.integers(0, [8, 128], (153, 2)), update=normal(153, 768), target=1.0),
    _stream("SliceGrad", "half of 8 × 12 × 128 × 128", f"{aten}.slice_backward(dY, size, 3, 32, 96, 1)", torch_setup=[_size],
            dY=normal(8, 12, 128, 64), shape=exactly([8, 12, 128, 128]), starts=exactly([32]), ends=exactly([96]), axes=exactly([3]), target=1.0),
    _stream("SliceGrad", "first of 8 × 128 × 768", f"{aten}.slice_backward(dY, size, 1, 0, 1, 1)", torch_setup=[_size],
            dY=normal(8, 1, 768), shape=exactly([8, 128, 768]), starts=exactly([0]), ends=exactly([1]), axes=exactly([1]), target=1.0),
]  # fmt: skip

_stem, _late, _unet = (8, 64, 112, 112), (8, 512, 7, 7), (4, 64, 128, 128)


def _batch_norm(shape):
    c = shape[1]
    return _stream("BatchNormalizationGrad", " × ".join(map(str, shape)),
                   f"{aten}.native_batch_norm_backward(dY, X, scale, None, None, mean, variance, True, 1e-5, [True] * 3)",
                   dY=normal(*shape), X=normal(*shape), scale=uniform(c, low=0.5), mean=normal(c, spread=0.1), variance=uniform(c, low=0.9, high=1.1), epsilon=1e-5, target=1.0)  # fmt: skip


NORMALIZATION = [
    _batch_norm(_stem), _batch_norm((8, 256, 56, 56)), _batch_norm(_late),
    _stream("BatchNormInternal", "8 × 64 × 112 × 112", f"{aten}.native_batch_norm(X, scale, B, input_mean.clone(), input_var.clone(), True, 0.1, 1e-5)", outputs=("Y",),
            X=normal(*_stem), scale=uniform(64, low=0.5), B=normal(64), input_mean=normal(64), input_var=uniform(64, low=0.5, high=2.0), target=1.0),
    _stream("GroupNormalizationGrad", "4 × 64 × 128 × 128, 32 groups", f"{aten}.native_group_norm_backward(dY, X, mean, inv, scale, 4, 64, 128 * 128, 32, [True] * 3)",
            torch_setup=["_, mean, inv = torch.native_group_norm(X, scale, scale, 4, 64, 128 * 128, 32, 1e-5)"],
            dY=normal(*_unet), X=normal(*_unet), scale=uniform(64, low=0.5), num_groups=32, target=1.0),
    _stream("InstanceNormalizationGrad", "4 × 64 × 128 × 128", f"{aten}.native_group_norm_backward(dY, X, mean, inv, scale, 4, 64, 128 * 128, 64, [True] * 3)",
            torch_setup=["_, mean, inv = torch.native_group_norm(X, scale, scale, 4, 64, 128 * 128, 64, 1e-5)"],
            dY=normal(*_unet), X=normal(*_unet), scale=uniform(64, low=0.5), target=1.0),
]  # fmt: skip
POOLING = [
    _stream("MaxPoolGrad", "8 × 64 × 112 × 112, 3x3 s2", f"{aten}.max_pool2d_with_indices_backward(dY, X, [3, 3], [2, 2], [1, 1], [1, 1], False, plane)",
            torch_setup=["X = torch.zeros(tuple(shape.tolist()))", "plane = Indices % (112 * 112)"],
            dY=normal(8, 64, 56, 56), Indices=lambda rng: _max_pool_indices(rng, 512, 112, 3), shape=exactly([8, 64, 112, 112]), target=1.0),
    _stream("MaxPoolGrad", "4 × 64 × 128 × 128, 2x2 s2", f"{aten}.max_pool2d_with_indices_backward(dY, X, [2, 2], [2, 2], [0, 0], [1, 1], False, plane)",
            torch_setup=["X = torch.zeros(tuple(shape.tolist()))", "plane = Indices % (128 * 128)"],
            dY=normal(4, 64, 64, 64), Indices=lambda rng: _max_pool_indices(rng, 256, 128, 2), shape=exactly([4, 64, 128, 128]), target=1.0),
    _stream("AveragePoolGrad", "8 × 2048 × 7 × 7, all", f"{aten}.avg_pool2d_backward(dY, X, [7, 7], [1, 1], [0, 0], False, False, None)",
            torch_setup=["X = torch.zeros(tuple(shape.tolist()))"], dY=normal(8, 2048, 1, 1), shape=exactly([8, 2048, 7, 7]), kernel_shape=[7, 7], target=1.0),
    _stream("AveragePoolGrad", "4 × 64 × 128 × 128, 2x2 s2", f"{aten}.avg_pool2d_backward(dY, X, [2, 2], [2, 2], [0, 0], False, False, None)",
            torch_setup=["X = torch.zeros(tuple(shape.tolist()))"], dY=normal(4, 64, 64, 64), shape=exactly([4, 64, 128, 128]), kernel_shape=[2, 2], strides=[2, 2], target=1.0),
    _stream("AveragePoolGrad", "4 × 64 × 128 × 128, 3x3 s1", f"{aten}.avg_pool2d_backward(dY, X, [3, 3], [1, 1], [1, 1], False, False, None)",
            torch_setup=["X = torch.zeros(tuple(shape.tolist()))"], dY=normal(4, 64, 128, 128), shape=exactly([4, 64, 128, 128]), kernel_shape=[3, 3], pads=[1, 1, 1, 1], target=1.0),
]  # fmt: skip

BENCHES = [
    _stream("ReluGrad", "4 M", f"{aten}.threshold_backward.grad_input(dY, X, 0, grad_input=out)", dY=normal(N), X=normal(N), target=0.95),
    _stream("SigmoidGrad", "4 M", f"{aten}.sigmoid_backward.grad_input(dY, Y, grad_input=out)", dY=normal(N), Y=uniform(N, low=0), target=0.95),
    _stream("TanhGrad", "4 M", f"{aten}.tanh_backward.grad_input(dY, Y, grad_input=out)", dY=normal(N), Y=uniform(N), target=0.95),
    _stream("LeakyReluGrad", "4 M", f"{aten}.leaky_relu_backward.grad_input(dY, Y, 0.01, True, grad_input=out)", dY=normal(N), Y=normal(N), target=0.95),
    _stream("QuickGeluGrad", "4 M", None, dY=normal(N), X=normal(N), target=1.5),
    _stream("GeluGrad", "4 M", f"{aten}.gelu_backward.grad_input(dY, X, grad_input=out)", dY=normal(N), X=normal(N), target=1.4),
    _stream("FastGeluGrad", "4 M", f"{aten}.gelu_backward.grad_input(dY, X, approximate='tanh', grad_input=out)", dY=normal(N), X=normal(N), target=3.5),
    _stream("BiasGeluGrad_dX", "5461 × 768", f"{aten}.gelu_backward.grad_input(dY, X + B, grad_input=out)", dY=normal(5461, 768), X=normal(5461, 768), B=normal(768), target=1.4),
    _stream("BiasFastGeluGrad_dX", "5461 × 768", f"{aten}.gelu_backward.grad_input(dY, X + B, approximate='tanh', grad_input=out)", dY=normal(5461, 768), X=normal(5461, 768), B=normal(768), target=3.5),
    _stream("SoftmaxGrad_13", "4096 × 1024, last axis", f"{aten}._softmax_backward_data.out(dY, Y, -1, torch.float32, grad_input=out)", dY=normal(*_rows), Y=simplex(*_rows), target=1.3),
    _stream("SoftmaxGrad_13", "64 × 1024 × 64, axis 1", f"{aten}._softmax_backward_data.out(dY, Y, 1, torch.float32, grad_input=out)", dY=normal(*_slab), Y=simplex(*_slab, axis=1), axis=1, target=3),
    _stream("SoftmaxGrad", "4096 × 1024", f"{aten}._softmax_backward_data.out(dY, Y, -1, torch.float32, grad_input=out)", dY=normal(*_rows), Y=simplex(*_rows)),
    _stream("LogSoftmaxGrad_13", "4096 × 1024, last axis", f"{aten}._log_softmax_backward_data.out(dY, Y, -1, torch.float32, out=out)", dY=normal(*_rows), Y=log_simplex(*_rows), target=1.3),
    _stream("LogSoftmaxGrad_13", "64 × 1024 × 64, axis 1", f"{aten}._log_softmax_backward_data.out(dY, Y, 1, torch.float32, out=out)", dY=normal(*_slab), Y=log_simplex(*_slab, axis=1), axis=1, target=3),
    _stream("LogSoftmaxGrad", "4096 × 1024", f"{aten}._log_softmax_backward_data.out(dY, Y, -1, torch.float32, out=out)", dY=normal(*_rows), Y=log_simplex(*_rows)),
    *LAYER_NORM,
    *GATHER,
    *NORMALIZATION,
    *POOLING,
    Bench("GeluGrad", "16 elements", f"{aten}.gelu_backward(dY, X)", dY=normal(16), X=normal(16), target=1.0),
    Bench("ReluGrad", "16 elements", f"{aten}.threshold_backward(dY, X, 0)", dY=normal(16), X=normal(16), target=1.0),
]
