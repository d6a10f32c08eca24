"""Look at a model without building its gradient: what carries one, and everything that stands in the way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from onnxgrad.autodiff.api import Request
from onnxgrad.autodiff.backward import Walk
from onnxgrad.autodiff.plan import Problem
from onnxgrad.graph import Builder


@dataclass
class Examination:
    """`wrt` are the tensors that were asked for, `active` the values that carry a gradient."""

    model: ir.Model
    wrt: list[ir.Value]
    active: set[ir.Value]
    problems: list[Problem] = field(default_factory=list)


def examine(
    model: Any, outputs: Iterable[str], wrt: Iterable[str], *, ops: str = "fused"
) -> Examination:
    """Plan the gradient of `outputs` by `wrt`, and try every rule on a copy, without refusing anything."""
    request = Request(model, outputs, wrt, ops, "initializers", patterns=True, seed=None)
    plan, values = request.plan()
    found = Examination(request.model, values, plan.active, list(plan.problems))
    found.problems += _refusals_of_rules(request, plan, values, {p.node for p in plan.problems})
    return found


def _refusals_of_rules(request: Request, plan, wrt, known: set[ir.Node]) -> list[Problem]:
    """What rules refuse when they meet their node: some forms of an operator have no gradient."""
    plan.problems = []
    plan.nodes = [n for n in plan.nodes if n not in known]
    op = Builder(request.model, wrt)
    walk = Walk(op, plan, request.ops)
    request.seed_walk(op, walk)
    walk.run()
    return plan.problems
