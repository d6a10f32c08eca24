"""The Trainer: a model, a loss and an optimizer; steps, epochs, predictions, files."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from onnxgrad.data.arrays import Batch, Names, make_data
from onnxgrad.files.boundary import guarded
from onnxgrad.model.change import Change
from onnxgrad.model.head import Head
from onnxgrad.model.lora.change import adapter_changes
from onnxgrad.model.quantize import Quantize, quantised
from onnxgrad.model.trainable import TrainableModel
from onnxgrad.train import lr_finder, optimizers, schedules
from onnxgrad.train import metrics as metrics_of
from onnxgrad.train.files.recipe import recipe
from onnxgrad.train.files.saving import Saving
from onnxgrad.train.loop.epoch_loop import EpochLoop
from onnxgrad.train.loop.evaluation import Evaluation, dealt
from onnxgrad.train.loop.history import History
from onnxgrad.train.lr_finder import LrCurve
from onnxgrad.train.parallel import Division, Group
from onnxgrad.train.show import shown
from onnxgrad.train.step.clock import Clock
from onnxgrad.train.step.diagnose import first_bad
from onnxgrad.train.step.not_finite import NotFinite, diverged
from onnxgrad.train.step.settle import settle
from onnxgrad.train.step.setup import TrainingPlan
from onnxgrad.train.step.training_step import TrainingStep

_NOT_KEPT = ("self", "__class__", "communicator")  # of a Trainer's arguments, in its recipe


def _checked_seed(seed: int) -> int:
    if not 0 <= int(seed) < 2**63:
        raise ValueError(f"seed is {seed!r}, expected a whole number from 0 to 2^63 - 1")
    return int(seed)


class Trainer(Saving):
    """Trains an ONNX model on stock ONNX Runtime.

    model: a path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`; it is not changed.
    loss: "cross_entropy", "bce", "mse", "l1", "huber", a loss of `onnxgrad.train.losses`, a function
        over the op builder, an ONNX model or an onnxscript function; a dict of these by output name.
        None takes the model's own scalar output. `loss_weights` are by output name.
    optimizer: "adamw", "adam", "sgd", or one of `onnxgrad.train.optimizers`; `lr` replaces its rate.
    trainable: "all", "head" (the last layer), names, globs or regular expressions.
    groups: parameter groups, each a dict with "params" (as `trainable`) and settings of the
        optimizer for them: `[{"params": "*.bias", "weight_decay": 0.0}]`. The first match counts.
    schedule, warmup: a name or one of `onnxgrad.train.schedules`, after `warmup` steps of rising.
    clip_norm, clip_value: limits for the norm of all gradients, and for each number in them.
    accumulate: add up the gradients of this many batches for one optimizer step.
    metrics: "accuracy", "top5", "f1", "auc", "mae", "r2" and others (docs/trainer.md), or functions
        (prediction, target); "box=mae" is of output box.
    freeze_bn: keep batch normalisations as the model has them; otherwise they use the statistics of
        the batch and update their own, as in PyTorch's training mode.
    dropout: the rate of the model's Dropout nodes; where it has none, one is put before the head.
    tie, untie: names or patterns of tensors that several places share, to keep one that would be
        untied, or to separate one that would stay. A shared tensor whose elements are all equal was
        merged by an exporter and is untied; others (embedding and head) stay tied.
    keep_float32: write a float16 or bfloat16 model in float32, in which it is trained.
    lora: `Lora(r=8, ...)`, a rank, or "r=8,alpha=16,targets=q_proj|v_proj": trains small branches
        beside frozen layers instead of the model's own weights. See docs/lora.md.
    head: an `onnxgrad.model.head.Head(classes)`: a new last layer for other classes.
    quantize: an `onnxgrad.model.quantize.Quantize`: the model becomes an integer file, and is trained as
        what that file computes.
    changes: further capabilities, each an `onnxgrad.model.change.Change`.
    seed: of shuffling and dropout. threads: of the session and the optimizer; default all cores.
    patterns: train what exporters write out in parts (attention, Gelu, RMSNorm) by one operator each;
        the tuned model has its own nodes either way.
    communicator: `MPI.COMM_WORLD` of mpi4py: all its processes train this model together. Each makes the same
        calls with the same arguments, computes its part of every batch, and process 0 writes the files.
    micro_batches: a power of two: every batch is cut into this many, each a run of its own. By default 1, with a
        communicator 8. The bits depend on it, and not on how many processes there are, unless
        `reproducible` is False: then each process computes its part at once. See docs/parallel.md.

        >>> import numpy as np, onnx, onnxgrad
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 8, opset_import: ["" : 17]>
        ...     line (float[N, 1] x) => (float[N, 1] y)
        ...     <float[1, 1] w = {0}, float[1] b = {0}> { p = MatMul(x, w)  y = Add(p, b) }''')
        >>> x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(-1, 1)
        >>> trainer = onnxgrad.Trainer(model, loss="mse", optimizer="sgd", lr=0.5)
        >>> history = trainer.fit(x, 3 * x + 1, epochs=20, batch_size=16)
        >>> trainer.get_weights()["w"].round(2)
        array([[3.]], dtype=float32)
    """

    @guarded
    def __init__(
        self,
        model: Any,
        loss: Any = None,
        optimizer: str | optimizers.Optimizer = "adamw",
        lr: float | None = None,
        *,
        trainable: str | Iterable[str] = "all",
        metrics: Any = (),
        loss_weights: Mapping[str, float] | None = None,
        groups: Iterable[Mapping[str, Any]] = (),
        schedule: Any = None,
        warmup: int = 0,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        accumulate: int = 1,
        freeze_bn: bool = False,
        dropout: float | None = None,
        tie: str | Iterable[str] = (),
        untie: str | Iterable[str] = (),
        keep_float32: bool = False,
        lora: Any = None,
        head: Head | None = None,
        quantize: Quantize | None = None,
        changes: Iterable[Change] = (),
        seed: int = 0,
        threads: int | None = None,
        patterns: bool = True,
        communicator: Any = None,
        micro_batches: int | None = None,
        reproducible: bool = True,
    ):
        given = {n: v for n, v in locals().items() if n not in _NOT_KEPT}
        self.division = Division(communicator, micro_batches, reproducible)
        self._recipe = recipe({**given, **self.division.settings(communicator)})
        self.seed, self.threads = _checked_seed(seed), self.division.threads(threads)
        self.optimizer = optimizers.resolve(optimizer, lr)
        self.schedule = schedules.resolve(schedule, warmup)
        self.metrics = metrics_of.resolve(metrics)
        changes = [*(() if head is None else (head,)), *changes]
        if quantize is not None:
            model, change = quantised(model, quantize)
            changes = [*changes, change]
        changes = [*changes, *adapter_changes(lora, trainable)]
        sharing = dict(tie=tie, untie=untie, keep_float32=keep_float32)
        subject = TrainableModel(model, **sharing, changes=changes)
        groups = list(groups)
        self._plan_of = lambda loss: TrainingPlan(
            subject, loss, loss_weights or {}, trainable, self.optimizer, groups,
            freeze_bn=freeze_bn, dropout=dropout, seed=self.seed, patterns=patterns,
        )  # fmt: skip
        self._step_of = lambda plan: TrainingStep(
            plan, self.threads, self.division,
            clip_norm=clip_norm, clip_value=clip_value, accumulate=accumulate,
        )  # fmt: skip
        self._settled = False
        with self.group.together():
            self._begin(loss)
        if self.group.size > 1:  # the digest needs the whole model as bytes
            self.group.equal("model", self._plan.model.source.digest())

    def _begin(self, loss: Any) -> None:
        """Work out graphs, memory and sessions for this loss."""
        self._plan = self._plan_of(loss)
        self.store, self.notes = self._plan.store, self._plan.notes
        metrics_of.check(self.metrics, self._plan.objective.targets)
        self._step = self._step_of(self._plan)
        self._evaluation = Evaluation(self._plan, self.threads, self.group)

    # ---- training ----------------------------------------------------------------------------

    @guarded
    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        validation: Any = None,
        epochs: int = 1,
        batch_size: int = 32,
        callbacks: Iterable[Any] = (),
        shuffle: bool = True,
        steps_per_epoch: int | None = None,
        max_steps: int | None = None,
        max_time: float | None = None,
        resume: str | os.PathLike[str] | None = None,
        verbose: int = 0,
    ) -> History:
        """Train for `epochs` passes over the data; return what happened.

        x, y: arrays, or dicts of arrays by input and target name; or x alone, an iterable of
            batches (dicts by name, or pairs), or a function from the epoch to such an iterable.
        validation: (x, y), an iterable of batches, or the share of the rows to set aside.
        max_steps, max_time: stop after this many optimizer steps of the run, or seconds.
        resume: a checkpoint, or a folder of them, to continue from; `epochs` counts from the start.
        verbose: 1 shows a bar on a terminal and in a notebook, else a line per epoch; 2 lines; 0 nothing.

        Raises DataError before the step that would use bad data, and DivergedError when a loss or
        gradient is not finite, with the weights as they were before that step. Ctrl-C ends the run
        after the step at hand, saves a checkpoint if a callback does, and raises KeyboardInterrupt.
        """
        with self.group.together():
            data = make_data(x, y, self.names, batch_size, shuffle, self.seed)
            callbacks = [*callbacks, *(shown(verbose) if self.group.writes else ())]
            loop = EpochLoop(self, data, validation, epochs, batch_size, callbacks)
            return loop.run(steps_per_epoch, max_steps, max_time, resume)

    @guarded
    def step(self, batch: Any, y: Any = None) -> dict[str, float]:
        """Train on one batch: a dict by name, a pair (x, y), or x and y; return the loss and more.

        The keys are loss, lr, grad_norm, and with several losses each one's own. With `accumulate`
        the weights change only when that many batches have come, and grad_norm is there only then.
        """
        with self.group.together():
            arrays = self.names.to_dict(batch) if y is None else self.names.join(batch, y)
            return self.train_batch(Batch(arrays, self._step.batches))

    def train_batch(self, batch: Batch, rate: float | None = None) -> dict[str, float]:
        """As `step`, for a batch that knows its rows; the loop's own step. `rate` takes the schedule's place."""
        batch = self.division.of(batch)
        self.settle(batch)
        step = self._step
        with self.clock("checks of the data"):
            arrays = step.checker(batch)
        self._evaluation.remember(arrays)
        rates = self.rates(rate)
        try:
            return {**step.step(arrays, rates, batch.cuts), "lr": rates[0]}
        except NotFinite as error:
            bad = first_bad(self._plan, step, arrays) if batch.rows_here else None
            every = self.group.gather("looking for what is not finite", bad)
            tensor = next(filter(None, every), error.what)
            raise diverged(error.what, tensor, self.steps + 1) from None

    def settle(self, batch: Batch) -> None:
        """Let the loss follow from the first batch: its class axis, and whether scores are probabilities."""
        if self._settled:
            return
        if self.group.size > 1:  # what process 0 has seen, so that all see the same
            batch = Batch(*self.group.gather("the first batch", (batch.arrays, batch.number))[0])
        inputs = {n: batch.arrays[n] for n in self._plan.inputs if n in batch.arrays}
        run = functools.partial(self._evaluation.run, dataclasses.replace(batch, arrays=inputs))
        losses, notes = settle(self._plan, batch.arrays, run)
        self._settled = True
        old = self.state() if losses else None
        if losses:
            self._begin(losses)
        self.notes += notes
        if losses:
            self.load_state(old)

    def _settling(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The batches, the first of which has settled the loss before anybody works on it."""
        first = next(batches, None)
        if first is None and self.group.size == 1:
            return batches
        self.settle(first or Batch({}, 0))
        return itertools.chain(filter(None, [first]), batches)

    def apply(self) -> float | None:
        """Apply gradients that wait for more batches, as at the end of an epoch; return their norm."""
        try:
            return self._step.apply(self.rates())
        except NotFinite as error:
            raise diverged(error.what, error.what, self.steps + 1) from None

    def rates(self, rate: float | None = None, back: int = 0) -> list[float]:
        """Return the learning rate of the next step, or one before, by group; as if lr were `rate`, if given."""
        groups = [o.lr for o in self._plan.group_optimizers]
        if rate is not None:
            return [rate * lr / self.optimizer.lr for lr in groups]
        return [self.schedule.rate(lr, max(0, self.steps - back)) for lr in groups]

    def begin_epoch(self, epoch: int) -> None:
        """Say which epoch the next steps belong to, from 0, as `fit` does: observers of ranges look at the first."""
        self._plan.begin_epoch(epoch)

    def bind_schedule(self, total: int | None, per_epoch: int | None) -> None:
        """Tell the schedule how many steps a run and an epoch have; None where nobody knows."""
        self.schedule = self.schedule.bound(total, per_epoch)

    @guarded
    def check(self, x: Any, y: Any = None, *, batch_size: int = 32) -> None:
        """Raise DataError where the data does not fit the model and the loss; nothing is computed."""
        with self.group.together():
            data = make_data(x, y, self.names, batch_size, False, self.seed)
            for batch in self._settling(dealt(data, self.group)):
                self._step.checker(batch)
        self.group.gather("the check of the data")

    @guarded
    def find_lr(
        self,
        x: Any,
        y: Any = None,
        *,
        low: float = 1e-7,
        high: float = 10.0,
        steps: int = 100,
        batch_size: int = 32,
    ) -> LrCurve:
        """Try rising learning rates, from low to high in `steps` steps; the weights are put back afterwards.

        The curve's `suggestion` is the rate at which the loss fell fastest; its `plot()` is a picture.
        """
        data = make_data(x, y, self.names, batch_size, True, self.seed)
        for first in data.epoch(0):
            self.settle(first)
            break
        before = self.state().copied()
        try:
            return lr_finder.find(self, data, low, high, steps)
        finally:
            self.load_state(before)

    # ---- looking -----------------------------------------------------------------------------

    @guarded
    def evaluate(self, x: Any, y: Any = None, *, batch_size: int = 32) -> dict[str, float]:
        """Return the loss and every metric over the data, with the model in inference mode."""
        with self.group.together():
            data = make_data(x, y, self.names, batch_size, False, self.seed)
            batches = self._settling(dealt(data, self.group))
            return self._evaluation.evaluate(batches, self.metrics)

    @guarded
    def predict(self, x: Any, *, batch_size: int = 32) -> Any:
        """Return the model's output for x; a dict by name where it has several."""
        return self._evaluation.predict(x, batch_size)

    def get_weights(self, *, flat: bool = False) -> Any:
        """Return copies of the trained tensors by name, or all parameters as one vector."""
        if flat:
            return self.store.flat()
        return {name: array.copy() for name, array in self.store.tensors().items()}

    def gradients(self, x: Any = None, y: Any = None) -> dict[str, np.ndarray]:
        """Return each parameter's gradient by name: for a batch as `step` takes it, or of the last step.

        Nothing is trained. The gradients are of the training form, before clipping; none before the first step.
        """
        if x is not None:
            batch = Batch(
                self.names.to_dict(x) if y is None else self.names.join(x, y), self._step.batches
            )
            self.settle(batch)
            self._step.differentiate(self._step.checker(batch))
        names = self._plan.trainable if x is not None or self._step.batches else ()
        return {n: self.store.gradient(n).copy() for n in names}

    def gradient_norms(self) -> dict[str, float]:
        """Return the norm of each parameter's gradient in the last batch, by name."""
        return {n: float(np.linalg.norm(g.astype(np.float64))) for n, g in self.gradients().items()}

    def set_weights(self, weights: Any) -> None:
        """Set tensors by name, or all parameters from a vector as `get_weights(flat=True)` gives."""
        if not isinstance(weights, Mapping):
            return self.store.set_flat(weights)
        return self.store.assign(weights)

    @property
    def group(self) -> Group:
        """The processes that train together."""
        return self.division.group

    @property
    def clock(self) -> Clock:
        """Where the time goes: seconds by part."""
        return self._step.clock

    @property
    def stepped(self) -> bool:
        return self._step.batches > 0

    @property
    def steps(self) -> int:
        """Optimizer steps made so far."""
        return self._step.steps

    @property
    def accumulate(self) -> int:
        """How many batches an optimizer step takes."""
        return self._step.accumulate

    @property
    def names(self) -> Names:
        """The names by which a batch gives inputs and targets."""
        return self._plan.names

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names by which a batch gives the model's inputs."""
        return self._plan.names.inputs

    @property
    def target_names(self) -> tuple[str, ...]:
        """The names by which a batch gives the targets of the loss."""
        return self._plan.names.targets
