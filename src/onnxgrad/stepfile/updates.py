"""Optimizers as nodes: the formulas of native/train/optimizers.cpp in standard operators.

Scalars that lose digits in float (1 - β₂ᵗ at the first steps) are computed in double and rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnxgrad.graph import Builder
from onnxgrad.train.optimizers import SGD, Adam, Optimizer

DOUBLE = ir.DataType.DOUBLE


@dataclass(frozen=True)
class Scalars:
    """What every update of one step reads: inputs of the step, as doubles."""

    lr: ir.Value
    step: ir.Value  # counted from 1


def update(
    op: Builder,
    optimizer: Optimizer,
    now: Scalars,
    weight: ir.Value,
    gradient: ir.Value,
    state: dict[str, ir.Value],
) -> tuple[ir.Value, dict[str, ir.Value]]:
    """Return the new weight and the new state."""
    if isinstance(optimizer, SGD):
        return _sgd(op, optimizer, now, weight, gradient, state)
    if isinstance(optimizer, Adam):
        return _adam(op, optimizer, now, weight, gradient, state)
    raise ValueError(
        f"{type(optimizer).__name__} cannot be written as nodes; expected SGD, Adam or AdamW"
    )


def _like(op: Builder, scalar: ir.Value, weight: ir.Value) -> ir.Value:
    return scalar if weight.dtype == DOUBLE else op.Cast(scalar, to=int(weight.dtype))


def _sgd(op, s: SGD, now, x, g, state):
    """d = g + λx;  b = μb + (1 - τ)d, at the first step b = d;  x - lr·(d + μb or b)."""
    d = op.Add(g, op.Mul(x, s.weight_decay)) if s.weight_decay else g
    new = {}
    if s.momentum:
        kept = op.Mul(state["momentum_buffer"], s.momentum)
        fresh = op.Mul(d, 1 - s.dampening) if s.dampening else d
        moved = op.Add(kept, fresh)
        if s.dampening:
            first = op.Equal(now.step, op.constant(1.0, DOUBLE))
            moved = op.Where(first, d, moved)
        new["momentum_buffer"] = moved
        d = op.Add(d, op.Mul(moved, s.momentum)) if s.nesterov else moved
    return op.Sub(x, op.Mul(d, _like(op, now.lr, x))), new


def _adam(op, s: Adam, now, x, g, state):
    """m += (1 - β₁)(g - m);  v = β₂v + (1 - β₂)g²;  x - lr/(1 - β₁ᵗ)·m / (√v/√(1 - β₂ᵗ) + ε)."""
    one = op.constant(1.0, DOUBLE)
    corrections = [op.Sub(one, op.Pow(op.constant(beta, DOUBLE), now.step)) for beta in s.betas]
    rate = _like(op, op.Div(now.lr, corrections[0]), x)
    widen = _like(op, op.Reciprocal(op.Sqrt(corrections[1])), x)
    if s.weight_decay and s.decoupled:
        shrink = op.Sub(one, op.Mul(now.lr, op.constant(s.weight_decay, DOUBLE)))
        x = op.Mul(x, _like(op, shrink, x))
    elif s.weight_decay:
        g = op.Add(g, op.Mul(x, s.weight_decay))
    m, v = state["exp_avg"], state["exp_avg_sq"]
    m = op.Add(m, op.Mul(op.Sub(g, m), 1 - s.betas[0]))
    v = op.Add(op.Mul(v, s.betas[1]), op.Mul(op.Mul(g, g), 1 - s.betas[1]))
    below = op.Add(op.Mul(op.Sqrt(v), widen), s.eps)
    return op.Sub(x, op.Div(op.Mul(m, rate), below)), {"exp_avg": m, "exp_avg_sq": v}


def clipped(
    op: Builder, gradients: list[ir.Value], norm: float | None, limit: float | None
) -> list[ir.Value]:
    """Return the gradients with their common norm at most `norm`, then each number in ±`limit`."""
    if norm is not None:
        squares = [op.ReduceSumSquare(op.Cast(g, to=int(DOUBLE)), keepdims=0) for g in gradients]
        length = op.Sqrt(squares[0] if len(squares) == 1 else op.Sum(*squares))
        share = op.Div(op.constant(norm, DOUBLE), op.Add(length, op.constant(1e-6, DOUBLE)))
        # Where instead of Min, which not every runtime has.
        one = op.constant(1.0, DOUBLE)
        scale = op.Where(op.Less(share, one), share, one)
        gradients = [op.Mul(g, _like(op, scale, g)) for g in gradients]
    if limit is not None:
        gradients = [op.Clip(g, -float(limit), float(limit)) for g in gradients]
    return gradients
