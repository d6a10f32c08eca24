"""Checkpoint files from parameters, and back into a model."""

from __future__ import annotations

import os

import onnx
from onnx import numpy_helper

from onnxgrad.dropin.old import checkpoint
from onnxgrad.errors import DropInError


def save_checkpoint(
    parameters: tuple[list[onnx.TensorProto], list[onnx.TensorProto]],
    path_to_checkpoint: str | os.PathLike,
    nominal_checkpoint: bool = False,
) -> None:
    """Write trained and frozen parameters to a checkpoint; a nominal one has their names only."""
    if parameters is None:
        raise DropInError(
            "No checkpoint parameters provided: parameters is None, expected the pair that "
            "TrainingBlock.parameters() returns"
        )
    trained, frozen = ({t.name: numpy_helper.to_array(t) for t in side} for side in parameters)
    checkpoint.write(checkpoint.Checkpoint(trained, frozen, nominal_checkpoint), path_to_checkpoint)


def load_checkpoint_to_model(path_to_checkpoint: str | os.PathLike, model: onnx.ModelProto) -> None:
    """Set the initializers of `model` to the numbers of a checkpoint, by name, in place."""
    found = checkpoint.read(path_to_checkpoint)
    if found.nominal:
        raise DropInError(
            f"checkpoint {os.fspath(path_to_checkpoint)} is nominal: it has names and no numbers"
        )
    arrays = {**found.trainable, **found.frozen}
    for tensor in model.graph.initializer:
        array = arrays.get(tensor.name)
        if array is None:
            continue
        if list(array.shape) != list(tensor.dims):
            raise DropInError(
                f"parameter {tensor.name!r} has shape {list(array.shape)} in the checkpoint, "
                f"expected {list(tensor.dims)} as in the model"
            )
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
