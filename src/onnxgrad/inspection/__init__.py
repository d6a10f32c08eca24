"""What in a model can be trained, what not, why, and what to do about it; and what a step will cost."""

from onnxgrad.inspection.report import Inspection, inspect

__all__ = ["Inspection", "inspect"]
