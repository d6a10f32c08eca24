"""One model whose gradients are compared with central differences, along random directions.

With L = Σ output·cotangent and a direction v in the space of one parameter p,
    (L(p + εv) − L(p − εv))/2ε   must equal   ⟨dL/dp, v⟩.
The direction is the gradient itself, where the slope is steepest, and then random ones.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxgrad import ort
from onnxgrad.autodiff import vjp
from onnxgrad.autodiff.plan import is_float
from onnxgrad.checking.double import to_double
from onnxgrad.checking.forward import ReferenceForward, RuntimeForward, quiet


@dataclass(frozen=True)
class Precision:
    """`step` is relative to the parameter; `tolerance` to |gradient|·|direction|; both are of `forward`."""

    name: str
    forward: np.dtype
    step: float
    tolerance: float


DOUBLE = Precision("double", np.dtype(np.float64), 1e-5, 1e-4)
# onnxruntime has no double kernels for some operator: its gradient in float, judged by differences in double.
MIXED = Precision("float, against differences in double", np.dtype(np.float64), 1e-5, 2e-3)
# In float the differences of outputs carry 1e-7 of the outputs themselves: steps are large, and the verdict coarse.
SINGLE = Precision("float", np.dtype(np.float32), 2e-3, 3e-2)
# A kink (Relu, MaxPool) between p − εv and p + εv spoils one step, hardly several.
STEPS = (1.0, 0.1, 10.0)


@dataclass(frozen=True)
class Row:
    parameter: str
    shape: tuple[int, ...]
    norm: float
    error: float
    good: bool


@dataclass(frozen=True)
class Error:
    """Of a slope, relative: as seen, beyond what rounding explains, and what rounding alone can do."""

    seen: float
    beyond: float
    noise: float


class Problem:
    """One model in one precision, with its sessions and a fixed cotangent for every float output."""

    def __init__(
        self, model: ir.Model, feeds: dict[str, np.ndarray], precision: Precision, seed: int
    ):
        self.model = to_double(model) if precision is DOUBLE else model
        self.precision, self.seed = precision, seed
        self.feeds = feeds
        gradient = vjp(self.model)
        self.outputs = [v.name for v in self.model.graph.outputs if is_float(v)]
        extra = gradient.graph.outputs[len(self.model.graph.outputs) :]
        self.parameters = [o.name.removesuffix("_grad") for o in extra]
        wide = to_double(model) if precision is MIXED else self.model
        constants = wide.graph.initializers
        self.values = {n: constants[n].const_value.numpy() for n in self.parameters}
        kind = ReferenceForward if precision is MIXED else RuntimeForward
        self.forward = kind(wide, self.parameters, self.outputs)
        self.cotangents = self._cotangents()
        self.gradients = self._gradients(gradient)
        norms = [float(np.linalg.norm(g.astype(np.float64))) for g in self.gradients.values()]
        self.largest = max((n for n in norms if np.isfinite(n)), default=0.0)
        self.rounding = self._rounding()

    def _cotangents(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(self.seed)
        results = self.forward(_as(self.feeds, self.precision.forward))
        return {n: rng.normal(size=np.shape(r)) for n, r in zip(self.outputs, results, strict=True)}

    def _gradients(self, gradient: ir.Model) -> dict[str, np.ndarray]:
        session = ort.session(ir.to_proto(gradient), quiet())
        names = [f"{n}_grad" for n in self.parameters]
        cotangents = {f"{n}_grad": v for n, v in self.cotangents.items()}
        known = {i.name for i in session.get_inputs()}
        given = self.for_runtime({**self.feeds, **cotangents})
        given = {k: v for k, v in given.items() if k in known}
        return dict(zip(self.parameters, session.run(names, given), strict=True))

    def _rounding(self) -> float:
        """What a gradient may be off by its own rounding: sums that cancel are no more exact than their terms."""
        kinds = {g.dtype for g in self.gradients.values()}
        return 64 * self.largest * max((float(np.finfo(k).eps) for k in kinds), default=0.0)

    def for_runtime(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Arrays in the precision that `model` has, and onnxruntime runs it in."""
        return _as(arrays, np.dtype(np.float64 if self.precision is DOUBLE else np.float32))

    def agrees_with_runtime(self) -> bool:
        """Whether both forward passes mean the same: a reference that does not is no judge."""
        runtime = RuntimeForward(self.model, self.parameters, self.outputs)
        ours = runtime(self.for_runtime(self.feeds))
        theirs = self.forward(_as(self.feeds, self.precision.forward))
        return all(
            np.shape(a) == np.shape(b)
            and np.allclose(a, b, rtol=1e-3, atol=1e-3 * max(1e-6, float(np.abs(b).max(initial=0))))
            for a, b in zip(ours, theirs, strict=True)
        )

    def loss(self, changed: dict[str, np.ndarray]) -> float:
        """Σ output·cotangent with some parameters replaced."""
        results = self.forward(_as({**self.feeds, **changed}, self.precision.forward))
        pairs = zip(self.outputs, results, strict=True)
        return float(sum(np.sum(r.astype(np.float64) * self.cotangents[n]) for n, r in pairs))

    def row(self, name: str, directions: int) -> Row:
        value = self.values[name].astype(np.float64)
        gradient = self.gradients[name].astype(np.float64)
        norm = float(np.linalg.norm(gradient))
        errors = [self._error(name, value, gradient, k) for k in range(directions)]
        worst = max(errors, key=lambda e: (e.beyond, e.seen))
        good = bool(np.isfinite(norm)) and worst.beyond <= self.precision.tolerance
        return Row(name, value.shape, norm, worst.seen, good)

    def _error(self, name: str, value: np.ndarray, gradient: np.ndarray, number: int) -> Error:
        """The smallest error over a few steps; later steps are tried only where the first disagrees."""
        rng = np.random.default_rng([zlib.crc32(name.encode()), number])
        norm = float(np.linalg.norm(gradient))
        steepest = number == 0 and 0 < norm < np.inf
        direction = gradient / norm if steepest else rng.normal(size=value.shape)
        direction = direction / max(float(np.linalg.norm(direction)), 1e-30)
        best = Error(np.inf, np.inf, 0.0)
        for factor in STEPS:
            step = factor * self.precision.step * _size(value)
            error = self._difference(name, value, direction, gradient, step)
            if factor == 1 or error.noise <= self.precision.tolerance:
                best = min(best, error, key=lambda e: e.beyond)
            if best.beyond <= self.precision.tolerance:
                break
        return best

    def _difference(self, name, value, direction, gradient, step: float) -> Error:
        up, down = (self.loss({name: value + sign * step * direction}) for sign in (1, -1))
        slope, expected = (up - down) / (2 * step), float(np.sum(gradient * direction))
        scale = max(float(np.linalg.norm(gradient)), abs(slope), 1e-12)
        epsilon = float(np.finfo(self.precision.forward).eps)
        noise = 4 * epsilon * max(abs(up), abs(down)) / (2 * step) + self.rounding
        seen = abs(slope - expected)
        beyond = max(0.0, seen - noise) / scale
        # a gradient that drowns in rounding is shown beside the largest one of the model
        visible = scale if scale > noise else max(scale, self.largest)
        return Error(seen / visible, beyond, noise / scale)


def _size(value: np.ndarray) -> float:
    """The length of a parameter, were all its numbers as large as the middle one; masks hold 1e38."""
    usual = np.abs(value[np.abs(value) < 1e6])
    middle = float(np.median(usual)) if usual.size else 0.0
    return max(middle * value.size**0.5, 1e-3)


def _as(arrays: dict[str, np.ndarray], kind: np.dtype) -> dict[str, np.ndarray]:
    """Floats in the precision at hand; everything else as it is."""
    return {k: v.astype(kind) if v.dtype.kind == "f" else v for k, v in arrays.items()}
