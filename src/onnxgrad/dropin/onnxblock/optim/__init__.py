"""Optimizers as blocks."""

from onnxgrad.dropin.onnxblock.optim.optim import SGD, AdamW, ClipGradNorm

__all__ = ["SGD", "AdamW", "ClipGradNorm"]
