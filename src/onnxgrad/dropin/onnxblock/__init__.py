"""Building models for training from blocks, under the names of onnxruntime.training.onnxblock."""

import onnxgrad.dropin.onnxblock.blocks as blocks
import onnxgrad.dropin.onnxblock.loss as loss
import onnxgrad.dropin.onnxblock.optim as optim
from onnxgrad.dropin.onnxblock.blocks import Block
from onnxgrad.dropin.onnxblock.checkpoint_utils import load_checkpoint_to_model, save_checkpoint
from onnxgrad.dropin.onnxblock.model_accessor import base, custom_op_library, empty_base
from onnxgrad.dropin.onnxblock.onnxblock import ForwardBlock, TrainingBlock

__all__ = [
    "Block",
    "ForwardBlock",
    "TrainingBlock",
    "base",
    "blocks",
    "custom_op_library",
    "empty_base",
    "load_checkpoint_to_model",
    "loss",
    "optim",
    "save_checkpoint",
]
