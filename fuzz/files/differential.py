"""Two ways to one gradient: onnxgrad's own operators against standard ones, on models that are valid.

Both are computed from the same inputs and cotangents, in double, where rounding is far below what a wrong formula
makes; in float where onnxruntime has no double of an operator. No two inputs are equal and none is zero, for there a
derivative may jump. A gradient that is not finite in one of the two says nothing.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

import onnxgrad
from onnxgrad.checking.double import to_double
from onnxgrad.errors import OnnxGradError
from onnxgrad.graph import load

TOLERANCE = {np.float64: 1e-7, np.float32: 2e-3}  # of the largest number of a gradient


class Differs(Exception):
    """Two gradients that should be one."""


def compare(data: bytes, inputs: dict[str, np.ndarray]) -> str:
    """Return what came of it. Raises Differs."""
    for kind, tolerance in TOLERANCE.items():
        models = [gradient(data, ops, kind) for ops in ("fused", "standard")]
        if None in models:
            return "one way only"
        found = [run(model, inputs, kind) for model in models]
        if None in found:
            continue
        fused, standard = found
        for name in fused:
            difference = apart(fused[name], standard[name])
            if difference > tolerance:
                raise Differs(f"{name}: fused and standard operators differ by {difference:.1e}")
        return "equal"
    return "does not run"


def gradient(data: bytes, ops: str, kind: type) -> ir.Model | None:
    """The gradients of everything that has one, as a graph of one or the other kind of operators."""
    try:
        model = load(data)
        return onnxgrad.vjp(to_double(model) if kind is np.float64 else model, ops=ops)
    except (OnnxGradError, ValueError):
        return None


def run(model: ir.Model, inputs: dict[str, np.ndarray], kind: type) -> dict[str, np.ndarray] | None:
    """Every result by name; None where the model does not run with this kind of numbers."""
    names = [v.name for v in model.graph.outputs]
    taken = [v.name for v in model.graph.inputs]
    feeds = {n: jittered(a, kind) for n, a in inputs.items() if n in taken}
    cotangents = [n for n in taken if n not in feeds]
    try:
        session = onnxgrad.session(ir.to_proto(model), threads=1)
        plain = [n for n in names if f"{n}_grad" in cotangents]
        made = dict(zip(plain, outputs_alone(model, plain, feeds), strict=True))
        waves = {n: wave(made[n.removesuffix("_grad")].shape).astype(kind) for n in cotangents}
        return dict(zip(names, session.run(None, feeds | waves), strict=True))
    except Exception:  # onnxruntime has no double of an operator, or a shape does not fit
        return None


def outputs_alone(model: ir.Model, names: list[str], feeds: dict) -> list[np.ndarray]:
    """The outputs of the model itself: their shapes are those of the cotangents."""
    copy = model.clone()
    copy.graph.outputs[:] = [v for v in copy.graph.outputs if v.name in names]
    copy.graph.inputs[:] = [v for v in copy.graph.inputs if v.name in feeds]
    ir.passes.common.RemoveUnusedNodesPass()(copy)
    return onnxgrad.session(ir.to_proto(copy), threads=1).run(names, feeds)


def jittered(array: np.ndarray, kind: type) -> np.ndarray:
    """Floats near 1, each another; anything else as it is."""
    return array if array.dtype.kind != "f" else (1 + wave(array.shape) / 3).astype(kind)


def wave(shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape))
    return np.sin(1.0 + 1.7 * np.arange(count)).reshape(shape)


def apart(a: np.ndarray, b: np.ndarray) -> float:
    """How far two gradients are apart, as a share of the largest number; infinite for other shapes."""
    if a.shape != b.shape:
        return float("inf")
    if not a.size or a.dtype.kind != "f" or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return 0.0
    largest = max(np.abs(a).max(), np.abs(b).max(), 1e-30)
    return float(np.abs(a - b).max() / largest)
