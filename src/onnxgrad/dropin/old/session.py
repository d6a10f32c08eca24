"""Sessions over the parameters of a state: nothing is copied between a step and the optimizer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

from onnxgrad import _native
from onnxgrad.dropin.old.batch import Batch
from onnxgrad.dropin.old.state import State
from onnxgrad.dropin.old.training_model import ArtifactModel, evaluation_model, training_model
from onnxgrad.errors import DropInError
from onnxgrad.train.step.bound_session import BoundSession, session_options

if TYPE_CHECKING:
    import onnxruntime


class TrainingSession:
    """Runs the training model; gradients end in the store of the state."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        state: State,
        options: onnxruntime.SessionOptions | None,
    ):
        self.state = state
        self.model = training_model(path, state.arrays)
        self.parameters = _match(self.model, state, path)
        if state.nominal:
            state.allocate({n: tuple(self.model.shapes[n][1]) for n in self.parameters})
        self.store = state.place(self.parameters, self.model.statistics)
        self.accumulate = False  # the first gradients replace what is in the buffers
        self._bound = _bound(self.model, state, self.parameters, options, self._outputs("g"))
        _match_gradients(self.model, self._bound, path)
        self._adding: BoundSession | None = None

    def _outputs(self, to: str) -> dict[str, np.ndarray]:
        """Return the memory for gradients, `g` or `total` of a segment, and for new statistics."""
        outputs = {}
        for segment in self.store.segments:
            flat = getattr(segment, to)
            outputs.update((self.model.gradients[n], segment.view(flat, n)) for n in segment.places)
        for name, new in self.model.statistics.items():
            outputs[new] = self.store.next_statistics[name]
        return outputs

    def run(self, batch: Batch) -> list[Any]:
        """Run a step; return the outputs that a user sees."""
        adds = self.accumulate
        values = _run(self._adder() if adds else self._bound, batch)
        if adds:
            for segment in self.store.segments:
                _native.add_to([segment.g], [segment.total])
        self.store.take_statistics()
        self.accumulate = True
        return values

    def reset(self) -> None:
        """Let the gradients of the next run replace those in the buffers."""
        self.accumulate = False

    def _adder(self) -> BoundSession:
        """Return the session that writes beside the gradients, which are added afterwards."""
        if self._adding is None:
            for segment in self.store.segments:
                segment.make_total()  # unless another Module of this state did
            self._adding = self._bound.writing_to(self._outputs("total"))
        return self._adding


class EvaluationSession:
    """Runs the evaluation model on the parameters of a state."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        state: State,
        options: onnxruntime.SessionOptions | None,
    ):
        self.path = path
        self.model = evaluation_model(path, state.arrays)
        parameters = [n for n in self.model.shapes if n in state.arrays]
        self._bound = _bound(self.model, state, parameters, options, {})

    def run(self, batch: Batch) -> list[Any]:
        """Run on a batch; return the outputs."""
        return _run(self._bound, batch)


def _bound(model: ArtifactModel, state: State, parameters, options, outputs) -> BoundSession:
    inputs = {n: state.arrays[n] for n in parameters}
    try:
        return BoundSession(
            model.model, options or session_options(None), inputs, outputs, model.outputs
        )
    except Exception as error:
        raise DropInError(f"onnxruntime refuses the model: {error}") from error


def _run(session: BoundSession, batch: Batch) -> list[Any]:
    try:
        if batch.has_text:
            return session.run_unbound(batch.values)
        return session.run_values(batch.values)
    except Exception as error:
        raise DropInError(f"the step failed in onnxruntime: {error}") from error


# ---- do the model and the checkpoint belong together?


def _match(model: ArtifactModel, state: State, path: str | os.PathLike[str]) -> list[str]:
    """Return the parameters that the model takes, in its order; refuse a checkpoint of another."""
    inputs = [n for n in model.shapes if n in state.arrays]
    missing = [n for n in model.gradients if n not in state.arrays]
    foreign = [n for n in state.trainable if n not in model.gradients]
    for names, what in (
        (missing, "the checkpoint has no {} that the training model trains"),
        (foreign, "the training model does not train {} that the checkpoint has as trained"),
    ):
        if names:
            listed = ", ".join(map(repr, names[:3])) + (", …" if len(names) > 3 else "")
            raise DropInError(
                f"the training model {os.fspath(path)} and the checkpoint do not belong together: "
                f"{what.format(f'parameter {listed}')}; use files of one generate_artifacts call"
            )
    for name in inputs:
        _match_shape(name, model, state, path)
    return inputs


def _match_gradients(
    model: ArtifactModel, session: BoundSession, path: str | os.PathLike[str]
) -> None:
    """The old package does not sum the gradient of a Where over the axes that it repeats."""
    ranks = {o.name: len(o.shape) for o in session.session.get_outputs() if o.shape is not None}
    for name, gradient in model.gradients.items():
        dims = model.shapes[name][1]
        rank = ranks.get(gradient)
        if dims is not None and rank is not None and rank != len(dims):
            raise DropInError(
                f"the training model {os.fspath(path)} computes a gradient of rank {rank} for "
                f"parameter {name!r} of shape {dims}: a mistake of onnxruntime-training, whose "
                "gradient of Where ignores broadcasting. Make the artifacts again with "
                "onnxgrad.dropin.artifacts.generate_artifacts"
            )


def _match_shape(name: str, model: ArtifactModel, state: State, path) -> None:
    kind, dims = model.shapes[name]
    array = state.arrays[name]
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind))
    if state.nominal or (dims is None and array.dtype == dtype):
        return
    if array.dtype != dtype or list(array.shape) != list(dims):
        raise DropInError(
            f"the training model {os.fspath(path)} and the checkpoint do not belong together: "
            f"parameter {name!r} is {array.dtype} {list(array.shape)} in the checkpoint, expected "
            f"{dtype} {dims}; use files of one generate_artifacts call"
        )
