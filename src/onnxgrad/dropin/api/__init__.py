"""Training with artifacts, under the names of onnxruntime.training.api."""

from onnxgrad.dropin.api.checkpoint_state import CheckpointState, Parameter
from onnxgrad.dropin.api.lr_scheduler import LinearLRScheduler
from onnxgrad.dropin.api.module import Module
from onnxgrad.dropin.api.optimizer import Optimizer

__all__ = [
    "CheckpointState",
    "LinearLRScheduler",
    "Module",
    "Optimizer",
    "Parameter",
]
