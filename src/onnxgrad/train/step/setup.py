"""What a Trainer works out once: graphs, names, trained tensors and their memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxgrad.data.arrays import Names
from onnxgrad.model import parameters, roles
from onnxgrad.model.modes import KEY, train_batch_norm, train_dropout
from onnxgrad.model.trainable import TrainableModel, judged_note
from onnxgrad.notes import Note
from onnxgrad.train.foreign_loss import resolve as resolve_loss
from onnxgrad.train.optimizers import Optimizer, override
from onnxgrad.train.step import build
from onnxgrad.train.step.buffers import Buffers


class TrainingPlan:
    """The graphs and the store of one Trainer."""

    def __init__(
        self,
        model: Any,
        loss: Any,
        loss_weights: Mapping[str, float],
        trainable: str | Iterable[str],
        optimizer: Optimizer,
        groups: Iterable[Mapping[str, Any]],
        *,
        freeze_bn: bool,
        dropout: float | None,
        seed: int,
        ops: str = "fused",
        patterns: bool = True,
    ):
        self.model = model if isinstance(model, TrainableModel) else TrainableModel(model)
        self.base = self.model.graph
        self.inputs = build.describe_inputs(self.base)
        self.outputs = [v.name for v in self.base.graph.outputs]
        self.notes: list[Note] = []
        self.objective = self._objective(loss, loss_weights)
        self.trainable = self._trainable(trainable)
        build.share(self.base, set(self.trainable))
        training = self.base.clone()
        statistics: dict[str, str | None] = {}
        if not freeze_bn:
            weights = {t.name for t in self.tensors if t.kind in (roles.WEIGHT, roles.FROZEN)}
            statistics |= train_batch_norm(training, set(self.trainable), weights, self.notes)
        for change in self.model.changes:
            statistics |= change.statistics()
        values = build.values_of(training)
        weights = [values[n] for n in self.trainable]
        # Read anew by every run; the step sets it.
        self.key = np.zeros(2, np.int64)
        self.key[0] = seed
        drops = train_dropout(training, dropout, weights, self.notes)
        self.settings = {KEY: self.key} if drops else {}
        for change in self.model.changes:
            self.settings |= change.switches()
        arrays = self.model.arrays([*self.trainable, *statistics])
        self.graph = build.training_graph(
            training, self.objective, self.trainable, statistics, switches=set(self.settings) - {KEY},
            ops=ops, patterns=patterns,
        )  # fmt: skip
        self.notes += self.objective.notes
        group_of, self.group_optimizers = self._groups(groups, optimizer)
        parameters_ = {n: arrays[n] for n in self.trainable}
        moving = self.graph.statistics
        self.store = Buffers(parameters_, group_of, {n: arrays[n] for n in statistics}, moving)
        kinds = dict.fromkeys(k for o in self.group_optimizers for k in o.kinds())
        self.store.add_state(kinds)
        targets = tuple(t.name for t in self.objective.expected())
        self.names = Names(tuple(self.inputs), targets)

    def _objective(self, loss: Any, weights: Mapping[str, float]) -> build.Objective:
        if not isinstance(loss, Mapping):
            loss = self._default_output(loss, self.model.float_outputs())
        for name in (*loss, *weights):
            if name not in self.outputs:
                listed = ", ".join(map(repr, self.outputs))
                raise ValueError(f"loss names the output {name!r}; the outputs are {listed}")
        return build.Objective(
            {n: x if x is build.OWN else resolve_loss(x) for n, x in loss.items()}, dict(weights)
        )

    def _default_output(self, loss: Any, floats: list[str]) -> dict[str, Any]:
        """One loss judges the first float output; no loss means a scalar output of the model."""
        values = {v.name: v for v in self.base.graph.outputs}
        if loss is not None:
            if not floats:
                raise ValueError("the model has no float32 or float64 output to train on")
            if len(floats) > 1:
                self.notes.append(judged_note(floats))
            return {floats[0]: loss}
        scalars = [n for n in floats if values[n].shape is not None and len(values[n].shape) == 0]
        if not scalars:
            raise ValueError(
                "loss is None, and the model has no scalar output that could be minimised; "
                'give a loss such as "cross_entropy" or "mse"'
            )
        return {"loss" if "loss" in scalars else scalars[0]: build.OWN}

    def _trainable(self, patterns: str | Iterable[str]) -> list[str]:
        self.tensors = self.model.tensors(self.objective.losses)
        self.notes += self.model.notes(self.tensors)
        return parameters.select(patterns, self.base, self.tensors)

    def _groups(self, groups, optimizer) -> tuple[dict[str, int], list[Optimizer]]:
        """Return the group of each parameter, the first that names it, and each one's optimizer."""
        of = dict.fromkeys(self.trainable, 0)
        settings = [optimizer]
        found = [t for t in self.tensors if t.name in of]
        found = [replace(t, kind=roles.WEIGHT) for t in found]
        for number, group in enumerate(groups, 1):
            if "params" not in group:
                raise ValueError(f"group {number - 1} has no 'params', expected names or patterns")
            rest = {k: v for k, v in group.items() if k != "params"}
            settings.append(override(optimizer, rest))
            for name in parameters.select(group["params"], self.base, found):
                of[name] = of[name] or number
        undecayed = [n for c in self.model.changes for n in c.undecayed() if of.get(n) == 0]
        if undecayed:
            settings.append(override(optimizer, {"weight_decay": 0.0}))
            of.update(dict.fromkeys(undecayed, len(settings) - 1))
        return of, settings

    def set_batch(self, number: int) -> None:
        """Let the random numbers of the next run be those of this batch."""
        self.key[1] = number

    def begin_epoch(self, epoch: int) -> None:
        """Tell the changes which epoch the next steps belong to."""
        for change in self.model.changes:
            change.begin_epoch(epoch)

    def loss_values(self) -> dict[str, ir.Value]:
        """Return the outputs that have a loss."""
        values = {v.name: v for v in self.base.graph.outputs}
        return {name: values[name] for name in self.objective.losses}
