"""Building models for training from blocks, under the names of onnxruntime.training.onnxblock."""

import onnxgrad.onnxblock.blocks as blocks
import onnxgrad.onnxblock.loss as loss
import onnxgrad.onnxblock.optim as optim
from onnxgrad.onnxblock.blocks import Block
from onnxgrad.onnxblock.checkpoint_utils import load_checkpoint_to_model, save_checkpoint
from onnxgrad.onnxblock.model_accessor import base, custom_op_library, empty_base
from onnxgrad.onnxblock.onnxblock import ForwardBlock, TrainingBlock

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
