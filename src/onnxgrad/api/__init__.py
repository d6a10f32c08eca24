"""Training with artifacts, under the names of onnxruntime.training.api."""

from onnxgrad.api.checkpoint_state import CheckpointState, Parameter
from onnxgrad.api.lr_scheduler import LinearLRScheduler
from onnxgrad.api.module import Module
from onnxgrad.api.optimizer import Optimizer

__all__ = [
    "CheckpointState",
    "LinearLRScheduler",
    "Module",
    "Optimizer",
    "Parameter",
]
