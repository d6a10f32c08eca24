"""A training step as one ONNX file: forward, loss, gradients and optimizer, for any onnxruntime."""

from onnxgrad.stepfile.files import StepFiles, merge, write_step

__all__ = ["StepFiles", "merge", "write_step"]
