"""Activations that exporters write out: Gelu by Erf or Tanh, Swish (SiLU), QuickGelu, HardSwish."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxgrad.graph.patterns.matching import Sight

_DEGREE = 3
# Operators that are one of the forms already; onnxruntime's kernels of them are slower than ours, or several.
_WHOLE = {
    ("", "Gelu"): lambda a: {"form": "tanh" if a.get("approximate") == "tanh" else "erf"},
    ("", "HardSwish"): lambda a: {"form": "hard"},
    ("", "Swish"): lambda a: {"form": "sigmoid", "alpha": a.get("alpha", 1.0)},
    ("com.microsoft", "Gelu"): lambda a: {"form": "erf"},
    ("com.microsoft", "QuickGelu"): lambda a: {"form": "sigmoid", "alpha": a.get("alpha", 1.702)},
}


def see_activation(sight: Sight, node: ir.Node) -> str | None:
    """Begin at the curve: everything else of an activation is sums and products with x."""
    if (node.domain, node.op_type) in _WHOLE and sight.is_float(node.outputs[0]):
        given = {k: a.value for k, a in node.attributes.items()}
        settings = _WHOLE[node.domain, node.op_type](given)
        sight.replace(node.outputs[0], sight.op.GeluTraining(node.inputs[0], **settings))
        return "GeluTraining"
    if node.op_type in ("HardSigmoid", "Clip") and not node.domain:
        return _see_hard_swish(sight, node)
    if (
        node.op_type not in ("Erf", "Tanh", "Sigmoid")
        or node.domain
        or not sight.is_float(node.outputs[0])
    ):
        return None
    x, inside = _polynomial(sight, node.inputs[0])
    if x is None:
        return None
    gelu = node.op_type in ("Erf", "Tanh")
    curve = _plus_one(sight, node.outputs[0]) if gelu else node.outputs[0]
    end = None if curve is None else _times(sight, curve, x, 0.5 if gelu else 1.0)
    new = None if end is None else _operator(sight, node.op_type, x, inside)
    if new is None or sight.dims(x) != sight.dims(end):
        return None
    sight.replace(end, new)
    return new.producer().op_type


def _see_hard_swish(sight: Sight, node: ir.Node) -> str | None:
    """x·gate/c, the gate c·(x/6 + 1/2) between 0 and c: c is 1 in HardSigmoid, and 6 in relu6(x + 3)."""
    if not sight.is_float(node.outputs[0]):
        return None
    x, inside = _polynomial(sight, node.inputs[0])
    least, most = 0.0, 1.0
    if node.op_type == "Clip":
        bounds = [sight.scalar(v) for v in (*node.inputs[1:], None, None)[:2]]
        least, most = (math.nan if b is None else b for b in bounds)
    else:
        slope, start = sight.attribute(node, "alpha", 0.2), sight.attribute(node, "beta", 0.5)
        inside = slope * inside + [start, 0, 0, 0]
    gate = [most / 2, most / 6, 0, 0]
    if x is None or least != 0 or not most > 0 or not np.allclose(inside, gate, rtol=1e-6, atol=0):
        return None
    end = _times(sight, node.outputs[0], x, 1 / most)
    if end is None or sight.dims(x) is None or sight.dims(x) != sight.dims(end):
        return None
    sight.replace(end, sight.op.GeluTraining(x, form="hard"))
    return "GeluTraining"


def _operator(sight: Sight, curve: str, x: ir.Value, inside: np.ndarray) -> ir.Value | None:
    """The operator whose curve has this argument, a polynomial in x."""
    a = math.sqrt(2 / math.pi)
    if curve == "Erf" and np.allclose(inside, [0, math.sqrt(0.5), 0, 0], rtol=1e-6, atol=0):
        return sight.op.GeluTraining(x, form="erf")
    if curve == "Tanh" and np.allclose(inside, [0, a, 0, a * 0.044715], rtol=1e-6, atol=0):
        return sight.op.GeluTraining(x, form="tanh")
    if curve == "Sigmoid" and inside[1] and not any(inside[[0, 2, 3]]):
        return sight.op.GeluTraining(x, form="sigmoid", alpha=float(inside[1]))
    return None


def _plus_one(sight: Sight, value: ir.Value) -> ir.Value | None:
    """value + 1, where that is all that is made of it."""
    node = sight.reader(value)
    if node is None or node.op_type != "Add" or node.domain:
        return None
    other = node.inputs[1] if node.inputs[0] is value else node.inputs[0]
    return node.outputs[0] if sight.scalar(other) == 1.0 else None


def _times(sight: Sight, value: ir.Value, x: ir.Value, factor: float) -> ir.Value | None:
    """value·x·factor, whatever the order of the products."""
    missing, left = True, factor
    while missing or not math.isclose(left, 1.0, rel_tol=1e-6):
        node = sight.reader(value)
        if node is None or node.op_type not in ("Mul", "Div") or node.domain:
            return None
        other = node.inputs[1] if node.inputs[0] is value else node.inputs[0]
        c = sight.scalar(other)
        base, scale = (other, 1.0) if other is x else sight.unscaled(other)
        if c and (node.op_type == "Mul" or other is node.inputs[1]):
            left = left / c if node.op_type == "Mul" else left * c
        elif missing and base is x and node.op_type == "Mul":
            missing, left = False, left / scale
        else:
            return None
        value = node.outputs[0]
    return value


def _polynomial(sight: Sight, value: ir.Value) -> tuple[ir.Value | None, np.ndarray]:
    """x and the coefficients of a polynomial in x of degree 3; x is a value that several nodes read.

    (None, …) is a constant; where there is no such polynomial, or two different x, the first is None and NaN.
    """
    nothing = None, np.full(_DEGREE + 1, np.nan)
    c = sight.scalar(value)
    if c is not None:
        return None, np.array([c, 0, 0, 0])
    node = sight.maker(value, "Mul", "Add", "Sub", "Div", "Pow") if sight.read_once(value) else None
    if node is None:
        return value, np.array([0.0, 1, 0, 0])
    (x, a), (y, b) = (_polynomial(sight, v) for v in node.inputs)
    if x is not None and y is not None and x is not y:
        return nothing
    combined = _combined(node.op_type, a, b)
    return (
        nothing
        if combined is None or np.isnan(combined).any()
        else (y if x is None else x, combined)
    )


def _combined(op_type: str, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    if op_type in ("Add", "Sub"):
        return a + b if op_type == "Add" else a - b
    if op_type == "Div":
        return a / b[0] if b[0] and not any(b[1:]) else None
    if op_type == "Pow":
        power = b[0] if not any(b[1:]) else 0
        if power not in (2, 3):
            return None
        b = a if power == 2 else np.convolve(a, a)
    product = np.convolve(a, b)
    return None if any(product[_DEGREE + 1 :]) else product[: _DEGREE + 1]
