"""Training: the Trainer, and the losses, optimizers, schedules, metrics and callbacks it takes."""

from onnxgrad.train.trainer import Trainer

__all__ = ["Trainer"]
