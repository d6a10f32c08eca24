"""What in a model can be trained, what cannot, why, and what to do about it; and what a step will cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxgrad.inspection.report import Inspection, inspect

__all__ = ["Inspection", "inspect"]


def __getattr__(name: str) -> Any:
    """Loaded when first used: the probe, a process of its own, must not wait for onnx."""
    if name in __all__:
        from onnxgrad.inspection import report

        return getattr(report, name)
    raise AttributeError(f"module 'onnxgrad.inspection' has no attribute '{name}'")
