"""Where the way from a parameter to the outputs ends: at operators that let no gradient through."""

from __future__ import annotations

import math
from collections import deque

import onnx_ir as ir

from onnxgrad.autodiff.examine import Examination
from onnxgrad.autodiff.plan import FLOATS, Problem
from onnxgrad.autodiff.rule import REFUSED

NEEDLESS = "train what comes after it, or take the loss from an output that does not pass it"


def dead_ends(examination: Examination) -> list[Problem]:
    """The nodes that stop the gradient of parameters which otherwise reach an output, each once."""
    problems: dict[ir.Node, Problem] = {}
    known = {problem.node for problem in examination.problems}
    for value in examination.wrt:
        if value not in examination.active and math.prod(value.shape) > 1:  # not a setting
            for node in _ends(value, known):
                problems.setdefault(node, _problem(node))
    return list(problems.values())


def _ends(value: ir.Value, known: set[ir.Node]) -> list[ir.Node]:
    """The first nodes on each way forward that stop a gradient; none where a known problem comes first."""
    found, waiting, seen = [], deque([value]), {value}
    while waiting:
        for node, _ in waiting.popleft().uses():
            if node in known or node in found:
                continue
            if _stops(node):
                found.append(node)
                continue
            new = [v for v in node.outputs if v not in seen]
            seen.update(new)
            waiting.extend(new)
    return found


def _stops(node: ir.Node) -> bool:
    refused = (node.domain, node.op_type) in REFUSED
    return refused or not any(v.dtype is None or v.dtype in FLOATS for v in node.outputs)


def _problem(node: ir.Node) -> Problem:
    refusal = REFUSED.get((node.domain, node.op_type))
    because = refusal.because if refusal is not None else "its result is not of a float type"
    instead = getattr(refusal, "instead", "") or NEEDLESS
    return Problem(node, because, instead)
