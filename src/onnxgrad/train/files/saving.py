"""The part of a Trainer that keeps and continues: its state as a value, checkpoints, the tuned model, adapters."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onnxgrad.files.boundary import guarded
from onnxgrad.train.files import checkpoint
from onnxgrad.train.files.adapter import export_adapter
from onnxgrad.train.files.export import export
from onnxgrad.train.files.recipe import arguments_of
from onnxgrad.train.state import TrainState

if TYPE_CHECKING:
    from typing_extensions import Self


class Saving:
    """A base of Trainer, which has the plan, the step, the evaluation and the buffers that are kept here."""

    def state(self) -> TrainState:
        """Return where training stands; its arrays are the trainer's own, not copies."""
        return TrainState(
            model=self._plan.model.source.digest(),
            seed=self.seed,
            optimizer=type(self.optimizer).__name__,
            weights=self.store.tensors(),
            optimizer_state=self.store.state(),
            step=self._step.steps,
            batches=self._step.batches,
            schedule=self.schedule.state(),
            recipe=self._recipe,
        )

    def load_state(self, state: TrainState) -> None:
        """Continue from a state of the same model, seed and optimizer; raises ValueError for another."""
        reason = state.mismatch(self.state())
        if reason:
            raise ValueError(f"the trainer cannot continue from this state: {reason}")
        self.store.load(state.weights, state.optimizer_state)
        self._step.resume(state.step, state.batches)
        if state.schedule is not None:
            self.schedule.load_state(state.schedule)

    def stay_near(self, strength: float) -> None:
        """Add strength/2·‖w − w₀‖² to what steps minimise, w₀ the weights of now, as FedProx does; 0 ends it.

        The loss that is shown is without it.
        """
        self._step.stay_near(strength)

    @guarded
    def save(self, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
        """Write the model with its new weights: the same graph, names and metadata, and what `metadata` adds.

        The file is checked in a session of its own, without onnxgrad's operators, against `predict`,
        and takes its name only then. Raises ExportError and leaves what was there otherwise.
        """
        self.notes += self.group.first(
            "saving", lambda: export(self._plan, self._evaluation, path, metadata or {})
        )

    def save_checkpoint(self, path: str | os.PathLike[str], **extra: Any) -> None:
        """Write weights and optimizer state into the folder `path`, all of it or nothing.

        `extra` is kept with them, and comes back from `load_checkpoint`; it must be plain data.
        """
        state = dataclasses.replace(self.state(), extra=extra)
        self.group.first("saving", lambda: str(checkpoint.save(state, path)))

    def save_adapter(self, folder: str | os.PathLike[str]) -> None:
        """Write what `lora` trained into a folder: for peft, for onnxruntime, and the model that takes it.

        The files are adapter_model.safetensors and adapter_config.json, adapter.onnx_adapter, and
        model.onnx, which runs with and without an adapter. The model is checked as `save` does.
        """
        self.group.first("saving", lambda: export_adapter(self._plan, self._evaluation, folder))

    @classmethod
    def from_checkpoint(cls, path: str | os.PathLike[str], **arguments: Any) -> Self:
        """Return a Trainer made as that of a checkpoint was, with its weights and optimizer state.

        path: a checkpoint, a folder of them, or the folder of a run. `arguments` are as for the
            constructor, for what has changed (`model`, where the file has moved) and for what a file
            cannot hold, such as a loss that is a function; the error names these.
        """
        trainer = cls(**arguments_of(checkpoint.recipe_of(path), path, arguments))
        trainer.load_checkpoint(path)
        return trainer

    def load_checkpoint(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Continue from a checkpoint, or the newest good one of a folder; return what came with it.

        Under "path" the result says which one it is, under "refused" why newer ones were passed over.
        """
        found = self.group.first("reading", lambda: checkpoint.find(self.state(), path))
        self.load_state(found.state)
        progress = found.state.progress
        return {
            **found.state.extra,
            "step": found.state.step,
            **({} if progress is None else {"progress": progress.as_dict()}),
            "path": str(found.path),
            "refused": found.refused,
        }
