"""Module: runs the training and the evaluation model of a set of artifacts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from onnxgrad.dropin.api.checkpoint_state import CheckpointState, state_of
from onnxgrad.dropin.old.batch import Batch
from onnxgrad.dropin.old.export import export_for_inference
from onnxgrad.dropin.old.session import EvaluationSession, TrainingSession
from onnxgrad.dropin.old.state import State
from onnxgrad.errors import DropInError, DropInTypeError

if TYPE_CHECKING:
    from onnxruntime import OrtValue, SessionOptions

LOAD = (
    "Please load the model parameters first. A nominal checkpoint has names and no numbers: "
    "Module.copy_buffer_to_parameters(buffer, trainable_only=False)"
)


class Module:
    """A model in training: call it with the inputs of a step, in train or in eval mode.

    `training` says which mode it is in.
    """

    training: bool

    def __init__(
        self,
        train_model_uri: os.PathLike,
        state: CheckpointState,
        eval_model_uri: os.PathLike | None = None,
        device: str = "cpu",
        session_options: SessionOptions | None = None,
    ) -> None:
        if device.split(":")[0].lower() != "cpu":
            raise DropInError(
                f"Unsupported device type: {device}; onnxgrad trains on the CPU: device='cpu'"
            )
        if not isinstance(state, CheckpointState):
            raise AttributeError(
                f"state is a {type(state).__name__}, expected a CheckpointState from "
                "CheckpointState.load_checkpoint"
            )
        self.training = True
        self._state = state
        self._train = TrainingSession(train_model_uri, state_of(state), session_options)
        self._eval = None
        if eval_model_uri is not None:
            self._eval = EvaluationSession(eval_model_uri, state_of(state), session_options)

    def __call__(
        self, *user_inputs
    ) -> tuple[np.ndarray, ...] | np.ndarray | tuple[OrtValue, ...] | OrtValue:
        """Run a step; the results are OrtValues if all inputs are, else NumPy arrays.

        In train mode the gradients are added to those of the last calls, or replace them after
        `lazy_reset_grad`. One result comes by itself, several as a tuple.
        """
        self._expect_numbers()
        session = self._session()
        batch = Batch(user_inputs, session.model)
        values = session.run(batch)
        results = tuple(values if batch.of_ort_values else (_array(v) for v in values))
        return results[0] if len(results) == 1 else results

    def _session(self) -> TrainingSession | EvaluationSession:
        if self.training:
            return self._train
        if self._eval is None:
            raise DropInError(
                "the Module is in eval mode and was made without an eval model; "
                "give Module(..., eval_model_uri=...) the eval_model.onnx of the artifacts"
            )
        return self._eval

    def _expect_numbers(self) -> None:
        if state_of(self._state).nominal:
            raise DropInError(f"the checkpoint of this Module is nominal. {LOAD}")

    def train(self, mode: bool = True) -> Module:
        """Set train mode, or eval mode where `mode` is False; return the Module."""
        self.training = mode
        return self

    def eval(self) -> Module:
        """Set eval mode; return the Module."""
        return self.train(False)

    def lazy_reset_grad(self):
        """Let the gradients of the next step replace those that were summed up."""
        self._train.reset()

    def get_contiguous_parameters(self, trainable_only: bool = False) -> OrtValue:
        """Return the parameters as one float32 vector, in the order of the training model."""
        from onnxruntime import OrtValue

        self._expect_numbers()
        arrays = self._parameters(trainable_only)
        flat = [a.reshape(-1) for a in arrays.values()]
        vector = np.concatenate([np.zeros(0, np.float32), *flat]).astype(np.float32)
        # memory of onnxruntime's own: an OrtValue made from an array does not keep the array
        value = OrtValue.ortvalue_from_shape_and_type([vector.size], np.float32)
        value.update_inplace(vector)
        return value._ortvalue

    def get_parameters_size(self, trainable_only: bool = True) -> int:
        """Return the number of elements in the parameters."""
        return sum(a.size for a in self._parameters(trainable_only).values())

    def copy_buffer_to_parameters(self, buffer: OrtValue, trainable_only: bool = True) -> None:
        """Set the parameters from a vector as `get_contiguous_parameters` gives it.

        It completes a nominal checkpoint, which needs all parameters.
        """
        state = state_of(self._state)
        if state.nominal and trainable_only:
            raise DropInError(
                "a nominal checkpoint needs the numbers of all parameters: "
                "copy_buffer_to_parameters(buffer, trainable_only=False)"
            )
        if not hasattr(buffer, "numpy"):
            raise DropInTypeError(
                f"the buffer is a {type(buffer).__name__}, expected an OrtValue as "
                "get_contiguous_parameters returns it; make one with "
                "onnxruntime.OrtValue.ortvalue_from_numpy(array)"
            )
        vector = np.asarray(buffer.numpy())
        arrays = self._parameters(trainable_only)
        size = sum(a.size for a in arrays.values())
        if vector.dtype != np.float32 or vector.shape != (size,):
            raise DropInError(
                f"the buffer is {vector.dtype} of shape {list(vector.shape)}, expected float32 of "
                f"shape [{size}]: Parameters buffer size incorrect."
            )
        at = 0
        for array in arrays.values():
            array[...] = vector[at : at + array.size].reshape(array.shape)
            at += array.size
        state.nominal = False

    def _parameters(self, trainable_only: bool) -> dict[str, np.ndarray]:
        state = state_of(self._state)
        names = [n for n in self._train.parameters if not trainable_only or n in state.trainable]
        return {n: state.arrays[n] for n in names}

    def export_model_for_inferencing(
        self, inference_model_uri: str | os.PathLike, graph_output_names: list[str]
    ) -> None:
        """Write the part of the eval model that computes the named outputs, with its parameters."""
        if self._eval is None:
            raise DropInError(
                "Eval model was not provided: a model is exported from it. Give "
                "Module(..., eval_model_uri=...) the eval_model.onnx of the artifacts"
            )
        self._expect_numbers()
        arrays = state_of(self._state).arrays
        export_for_inference(self._eval.path, arrays, inference_model_uri, graph_output_names)

    def input_names(self) -> list[str]:
        """Return the names of the inputs of a step in the present mode."""
        session = self._train if self.training else self._eval
        return [] if session is None else list(session.model.inputs)

    def output_names(self) -> list[str]:
        """Return the names of the outputs of a step in the present mode."""
        session = self._train if self.training else self._eval
        return [] if session is None else list(session.model.outputs)


def state_of_module(module: Module) -> State:
    """Return the parameters that a Module trains."""
    return state_of(module._state)


def _array(value) -> np.ndarray:
    return value if isinstance(value, np.ndarray) else value.numpy()
