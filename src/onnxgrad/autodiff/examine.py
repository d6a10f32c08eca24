"""Look at a model without building its gradient: what carries one, and everything that stands in the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from onnxgrad.autodiff.api import _Request
from onnxgrad.autodiff.backward import Walk
from onnxgrad.autodiff.plan import Problem
from onnxgrad.graph import Builder


@dataclass
class Examination:
    """`wrt` are the tensors that would be trained by default, `active` the values that carry a gradient."""

    model: ir.Model
    wrt: list[ir.Value]
    weights: list[ir.Value]
    statistics: set[ir.Value]
    active: set[ir.Value]
    problems: list[Problem] = field(default_factory=list)


def examine(model: Any, *, ops: str = "fused") -> Examination:
    """Plan the gradient of every float output, and try every rule on a copy, without refusing anything."""
    request = _Request(model, None, None, ops, "initializers", seed=None)
    plan, _ = request._plan()
    graph = request.model.graph
    wrt = request._trainable()
    statistics = {
        v for n in graph if n.op_type == "BatchNormalization" for v in tuple(n.inputs)[3:5] if v
    }
    found = Examination(
        model=request.model,
        wrt=wrt,
        weights=list(graph.initializers.values()),
        statistics=statistics,
        active=plan.active,
        problems=list(plan.problems),
    )
    found.problems += _refusals_of_rules(request, plan, {p.node for p in plan.problems})
    return found


def _refusals_of_rules(request: _Request, plan, known: set[ir.Node]) -> list[Problem]:
    """What rules refuse when they meet their node: some forms of an operator have no gradient."""
    plan.problems = []
    plan.nodes = [n for n in plan.nodes if n not in known]
    op = Builder(request.model, request._trainable())
    walk = Walk(op, plan, request.ops)
    request._seed(op, walk)
    walk.run()
    return plan.problems
