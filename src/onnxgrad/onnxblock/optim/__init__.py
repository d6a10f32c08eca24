"""Optimizers as blocks."""

from onnxgrad.onnxblock.optim.optim import SGD, AdamW, ClipGradNorm

__all__ = ["SGD", "AdamW", "ClipGradNorm"]
