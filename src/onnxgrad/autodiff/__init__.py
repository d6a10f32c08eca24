"""Automatic differentiation of ONNX graphs. Needs no runtime: only onnx, onnx-ir and NumPy."""

from onnxgrad.autodiff.api import grad, vjp
from onnxgrad.autodiff.rule import NoGradient, fused, no_gradient, rule, unsupported
from onnxgrad.errors import GradientError

__all__ = [
    "GradientError",
    "NoGradient",
    "fused",
    "grad",
    "no_gradient",
    "rule",
    "unsupported",
    "vjp",
]
