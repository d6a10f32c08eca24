"""Gradients against central differences, parameter by parameter; and the culprit where they disagree."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from onnxgrad.checking.culprit import find_culprit
from onnxgrad.checking.feeds import check_feeds, random_feeds
from onnxgrad.checking.problem import DOUBLE, MIXED, SINGLE, Problem, Row
from onnxgrad.errors import GradientError, ModelError
from onnxgrad.files.boundary import guarded
from onnxgrad.graph import load

REFERENCE_SECONDS = 60.0  # the reference is slow: above this float has to do


@dataclass
class Check:
    """`culprit` names the operator whose own gradient is wrong, when one was found."""

    precision: str
    rows: list[Row] = field(default_factory=list)
    culprit: str = ""

    @property
    def good(self) -> bool:
        return all(row.good for row in self.rows)


@guarded
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
    prepared = _with_initializers(load(model))
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
        result.culprit = find_culprit(problem)
    return result


def _with_initializers(model: ir.Model) -> ir.Model:
    """Every Constant, however small, as an initializer: it may be a parameter."""
    return LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model).model


def _in_best_precision(model: ir.Model, feeds: dict[str, np.ndarray], seed: int) -> Problem:
    for precision in (DOUBLE, MIXED):
        try:
            problem = Problem(model, feeds, precision, seed)
            if precision is DOUBLE or (
                _seconds(problem) < REFERENCE_SECONDS and problem.agrees_with_runtime()
            ):
                return problem
        except (GradientError, ModelError):
            raise
        except Exception:
            continue  # a kernel that the runtime or the reference lacks in this precision
    try:
        return Problem(model, feeds, SINGLE, seed)
    except Exception as error:
        if not type(error).__module__.startswith("onnxruntime"):
            raise
        text = f"onnxruntime cannot run the model with these inputs: {error}"
        raise ModelError(f"{text}. Give others with --data") from error


def _seconds(problem: Problem) -> float:
    """What a check of every parameter will take: four runs each."""
    began = time.monotonic()
    problem.loss({})
    return 4 * (time.monotonic() - began) * len(problem.parameters)
