"""Where the path from a parameter to the outputs ends: at operators that let no gradient through."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import onnx_ir as ir

from onnxgrad.autodiff.plan import FLOATS, Problem
from onnxgrad.autodiff.rule import REFUSED

NEEDLESS = "train what comes after it, or take the loss from an output that does not pass it"


def dead_ends(values: Iterable[ir.Value]) -> dict[ir.Node, list[str]]:
    """Return the nodes at which the paths from tensors without a gradient end, with those tensors' names."""
    found: dict[ir.Node, list[str]] = {}
    for value in values:
        for node in _ends(value):
            found.setdefault(node, []).append(value.name)
    return found


def _ends(value: ir.Value) -> list[ir.Node]:
    """The first nodes that stop a gradient on each path forward, by the shortest path."""
    found, waiting, seen = [], deque([value]), {value}
    while waiting:
        for node, _ in waiting.popleft().uses():
            if node in found:
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


def problem_of(node: ir.Node) -> Problem:
    """Say why a node stops a gradient, and what to do."""
    refusal = REFUSED.get((node.domain, node.op_type))
    because = refusal.because if refusal is not None else "its result is not of a float type"
    instead = getattr(refusal, "instead", "") or NEEDLESS
    return Problem(node, because, instead)
