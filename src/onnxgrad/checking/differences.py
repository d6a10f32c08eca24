"""Gradients against central differences, parameter by parameter, along random directions.

With L = Σ output·cotangent and a direction v in the space of one parameter p,
    (L(p + εv) − L(p − εv))/2ε   must equal   ⟨dL/dp, v⟩.
The direction is the gradient itself, where the slope is steepest, and then random ones.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from onnxgrad import ort
from onnxgrad.autodiff import vjp
from onnxgrad.autodiff.plan import is_float
from onnxgrad.checking.double import to_double
from onnxgrad.checking.feeds import check_feeds, random_feeds
from onnxgrad.errors import ModelError
from onnxgrad.graph import load


@dataclass(frozen=True)
class Precision:
    """`step` is relative to the parameter; `tolerance` to |gradient|·|direction|."""

    name: str
    step: float
    tolerance: float


DOUBLE = Precision("double", 1e-5, 1e-4)
# In float the differences of outputs carry 1e-7 of the outputs themselves: steps are large, and the verdict coarse.
SINGLE = Precision("float", 2e-3, 3e-2)


@dataclass(frozen=True)
class Row:
    parameter: str
    shape: tuple[int, ...]
    norm: float
    error: float
    good: bool


@dataclass
class Check:
    """`culprit` names the operator whose own gradient is wrong, when one was found."""

    precision: str
    rows: list[Row] = field(default_factory=list)
    culprit: str = ""

    @property
    def good(self) -> bool:
        return all(row.good for row in self.rows)


def check_gradients(
    model: Any,
    data: Mapping[str, np.ndarray] | None = None,
    *,
    directions: int = 2,
    seed: int = 0,
    progress: Callable[[Row], None] | None = None,
) -> Check:
    """Compare the gradient of every trainable parameter with central differences.

    `data` holds the inputs by name; random ones are made when it is None. In double where the runtime has the
    kernels, else in float. `progress` is called with each row.
    """
    prepared = LiftConstantsToInitializersPass(lift_all_constants=True)(load(model)).model
    if data is not None:
        feeds = check_feeds(data, prepared, "data")
    else:
        feeds = random_feeds(prepared, np.random.default_rng(seed))
    problem = _in_best_precision(prepared, feeds, seed)
    result = Check(problem.precision.name)
    for name in problem.parameters:
        row = problem.row(name, directions)
        result.rows.append(row)
        if progress:
            progress(row)
    if not result.good:
        from onnxgrad.checking.culprit import find_culprit

        result.culprit = find_culprit(problem)
    return result


class Problem:
    """One model in one precision, with its sessions and a fixed cotangent for every float output."""

    def __init__(
        self, model: ir.Model, feeds: dict[str, np.ndarray], precision: Precision, seed: int
    ):
        self.model, self.precision, self.seed = model, precision, seed
        self.feeds = {k: _as(v, precision) for k, v in feeds.items()}
        gradient = vjp(model)
        self.outputs = [v.name for v in model.graph.outputs if is_float(v)]
        self.parameters = [
            o.name.removesuffix("_grad") for o in gradient.graph.outputs[len(model.graph.outputs) :]
        ]
        self.values = {n: model.graph.initializers[n].const_value.numpy() for n in self.parameters}
        self.forward = ort.session(_with_inputs(model, self.parameters), _quiet())
        self.cotangents = self._cotangents()
        self.gradients = self._gradients(gradient)

    def _cotangents(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(self.seed)
        results = self.forward.run(self.outputs, self._feeds({}))
        return {
            n: rng.normal(size=r.shape).astype(r.dtype)
            for n, r in zip(self.outputs, results, strict=True)
        }

    def _gradients(self, gradient: ir.Model) -> dict[str, np.ndarray]:
        session = ort.session(ir.to_proto(gradient), _quiet())
        names = [f"{n}_grad" for n in self.parameters]
        cotangents = {f"{n}_grad": v for n, v in self.cotangents.items()}
        known = {i.name for i in session.get_inputs()}
        feeds = {k: v for k, v in {**self.feeds, **cotangents}.items() if k in known}
        return dict(zip(self.parameters, session.run(names, feeds), strict=True))

    def _feeds(self, changed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        known = {i.name for i in self.forward.get_inputs()}
        return {k: v for k, v in {**self.feeds, **changed}.items() if k in known or k in changed}

    def loss(self, changed: dict[str, np.ndarray]) -> float:
        """Σ output·cotangent with some parameters replaced."""
        results = self.forward.run(self.outputs, self._feeds(changed))
        pairs = zip(self.outputs, results, strict=True)
        return float(
            sum(
                np.sum(r.astype(np.float64) * self.cotangents[n].astype(np.float64))
                for n, r in pairs
            )
        )

    def row(self, name: str, directions: int) -> Row:
        value, gradient = self.values[name], self.gradients[name].astype(np.float64)
        norm = float(np.linalg.norm(gradient))
        error = max(self._error(name, value, gradient, k) for k in range(directions))
        good = bool(np.isfinite(norm)) and error <= self.precision.tolerance
        return Row(name, value.shape, norm, error, good)

    def _error(self, name: str, value: np.ndarray, gradient: np.ndarray, number: int) -> float:
        rng = np.random.default_rng([zlib.crc32(name.encode()), number])
        norm = float(np.linalg.norm(gradient))
        steepest = number == 0 and norm > 0
        direction = gradient / norm if steepest else rng.normal(size=value.shape)
        direction = direction / max(float(np.linalg.norm(direction)), 1e-30)
        step = self.precision.step * max(float(np.linalg.norm(value)), 1e-3)
        up, down = (
            self.loss({name: (value + sign * step * direction).astype(value.dtype)})
            for sign in (1, -1)
        )
        slope, expected = (up - down) / (2 * step), float(np.sum(gradient * direction))
        # what the rounding of the two losses alone can do to the slope
        noise = 4 * float(np.finfo(value.dtype).eps) * max(abs(up), abs(down)) / (2 * step)
        difference = max(0.0, abs(slope - expected) - noise)
        return difference / max(norm, abs(slope), 1e-12)


def _in_best_precision(model: ir.Model, feeds: dict[str, np.ndarray], seed: int) -> Problem:
    try:
        return Problem(to_double(model), feeds, DOUBLE, seed)
    except Exception as error:
        if type(error).__name__ in ("GradientError", "ModelError"):
            raise
    try:
        return Problem(model, feeds, SINGLE, seed)
    except Exception as error:
        if not type(error).__module__.startswith("onnxruntime"):
            raise
        text = f"onnxruntime cannot run the model with these inputs: {error}"
        raise ModelError(f"{text}. Give others with --data") from error


def _as(array: np.ndarray, precision: Precision) -> np.ndarray:
    wide = precision is DOUBLE and array.dtype == np.float32
    return array.astype(np.float64) if wide else array


def _with_inputs(model: ir.Model, names: list[str]):
    """The forward model whose parameters may be fed: initializers that are inputs too are defaults."""
    copy = model.clone()
    for name in names:
        value = copy.graph.initializers[name]
        if value not in copy.graph.inputs:
            copy.graph.inputs.append(value)
    return ir.to_proto(copy)


def _quiet():
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return options
