"""The forward pass with some parameters replaced: in ONNX Runtime, or in ONNX's own reference in double."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxgrad import ort


class RuntimeForward:
    """A session whose parameters may be fed: initializers that are inputs too are defaults."""

    def __init__(self, model: ir.Model, parameters: Iterable[str], outputs: list[str]):
        self.session = ort.session(with_inputs(model, parameters), quiet())
        self.outputs = outputs
        inputs = (*self.session.get_inputs(), *self.session.get_overridable_initializers())
        self.known = {i.name for i in inputs}

    def __call__(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return self.session.run(self.outputs, {k: v for k, v in feeds.items() if k in self.known})


class ReferenceForward:
    """NumPy in double: slow, but it has every operator of ONNX in that precision."""

    def __init__(self, model: ir.Model, parameters: Iterable[str], outputs: list[str]):
        from onnx.reference import ReferenceEvaluator

        proto = with_inputs(model, parameters)
        self.evaluator = ReferenceEvaluator(proto, new_ops=[_double_erf()])
        self.outputs = outputs
        self.defaults = {n: model.graph.initializers[n].const_value.numpy() for n in parameters}

    def __call__(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return self.evaluator.run(self.outputs, {**self.defaults, **feeds})


def _double_erf() -> type:
    """The reference computes Erf in float whatever it is given."""
    from onnx.reference.op_run import OpRun

    class Erf(OpRun):
        op_domain = ""

        def _run(self, x):
            return (np.vectorize(math.erf, otypes=[x.dtype])(x),)

    return Erf


def with_inputs(model: ir.Model, names: Iterable[str]) -> onnx.ModelProto:
    """The model with these initializers as inputs too."""
    copy = model.clone()
    for name in names:
        value = copy.graph.initializers[name]
        if value not in copy.graph.inputs:
            copy.graph.inputs.append(value)
    return ir.to_proto(copy)


def quiet() -> Any:
    """Session options without onnxruntime's own warnings."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return options
