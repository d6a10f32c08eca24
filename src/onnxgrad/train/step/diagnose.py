"""Where a number that is not finite came from: the training graph run once with every value visible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import onnx

from onnxgrad.ort import session
from onnxgrad.train.step.bound_session import session_options

if TYPE_CHECKING:
    from onnxgrad.train.step.setup import TrainingPlan
    from onnxgrad.train.step.training_step import TrainingStep


def first_bad(
    plan: TrainingPlan, step: TrainingStep, arrays: Mapping[str, np.ndarray]
) -> str | None:
    """Return the first value, in the order of the graph, that holds NaN or inf; None if none does.

    Inputs that hold inf on purpose (a mask) are not named unless nothing else is.
    """
    inputs = {**step.bound_inputs(), **arrays}
    for name, array in step.bound_inputs().items():
        if _bad(array):
            return name
    model = plan.graph.model.whole()
    shown = {o.name for o in model.graph.output}
    names = []
    for node in model.graph.node:
        for name in node.output:
            if not name:
                continue
            names.append(name)
            if name not in shown:
                model.graph.output.append(onnx.ValueInfoProto(name=name))
    options = session_options(step.threads)
    options.graph_optimization_level = _no_optimization()
    values = session(model, options).run(names, inputs)
    return next((n for n, v in zip(names, values, strict=True) if _bad(v)), None)


def _bad(value: object) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.dtype.kind == "f"
        and not bool(np.isfinite(value).all())
    )


def _no_optimization() -> object:
    import onnxruntime

    return onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
