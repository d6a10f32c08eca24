"""The loop of `fit`: epochs of batches, validation, callbacks; and where a run stands."""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxgrad.data.arrays import ArrayData, Data, make_data
from onnxgrad.data.share import shared_epoch
from onnxgrad.errors import CheckpointError, ParallelError
from onnxgrad.train.files import checkpoint
from onnxgrad.train.loop.history import History
from onnxgrad.train.state import Progress, TrainState


class EpochLoop:
    """One call of `fit`. Callbacks get it; `end("a reason")`, or setting `stop` to one, ends the run."""

    def __init__(self, trainer, data, validation, epochs, batch_size, callbacks):
        self.trainer, self.data, self.epochs = trainer, data, epochs
        self.batch_size = batch_size
        self.validation = self._validation(validation)
        self.callbacks = sorted(callbacks, key=lambda c: getattr(c, "order", 0))
        self.group = trainer.group
        described = self.group.first("describing the data", lambda: _description(self.data))
        self.progress = Progress(data=described)
        self.stop = ""
        self.total_steps: int | None = None
        self.started = 0.0

    def _validation(self, validation: Any) -> Data | None:
        names, seed = self.trainer.names, self.trainer.seed
        if validation is None:
            return None
        if isinstance(validation, float):
            self.data, kept = split(self.data, validation, seed)
            return kept
        if isinstance(validation, tuple) and len(validation) == 2:
            return make_data(*validation, names, self.batch_size, False, seed)
        return make_data(validation, None, names, self.batch_size, False, seed)

    def run(self, steps_per_epoch, max_steps, max_time, resume) -> History:
        trainer = self.trainer
        self.started = time.monotonic()
        self.max_steps, self.max_time = max_steps, max_time
        per_epoch = self._steps(steps_per_epoch)
        self.total_steps = self._total(per_epoch)
        trainer.bind_schedule(self.total_steps, per_epoch)
        if resume is not None:
            find = self.group.first("resuming", lambda: checkpoint.find(trainer.state(), resume))
            self._restore(find)
        with Interruption() as interruption:
            self.interruption = interruption
            self._tell("on_fit_begin")
            try:
                while self.progress.epoch < self.epochs and not self.stop:
                    self._epoch(steps_per_epoch)
                    self.stop = self._agreed(self.stop or interruption.reason)
                if interruption.reason or self.progress.position:
                    self._tell("on_interrupt")
            except ParallelError:
                self._tell("on_interrupt")  # all steps so far are whole
                raise
            finally:
                self._tell("on_fit_end")
        if interruption.reason or self.stop == Interruption.WORD:
            raise KeyboardInterrupt
        return History(self.progress.epochs, self.stop, time.monotonic() - self.started)

    @property
    def writes(self) -> bool:
        """Whether this process writes files: of several the first."""
        return self.group.writes

    def end(self, reason: str) -> None:
        """End the run after the step or epoch at hand; History tells the reason."""
        self.stop = reason

    def state(self) -> TrainState:
        """Return where the run stands: the trainer's state, the position in the data, the callbacks' own."""
        return dataclasses.replace(
            self.trainer.state(),
            progress=self.progress,
            callbacks=self.callback_state(),
            callback_tensors=self.callback_tensors(),
        )

    def _restore(self, found: checkpoint.Found) -> None:
        mine, state = self.progress, found.state
        if state.progress is not None and state.progress.data != mine.data:
            theirs, own = dict(state.progress.data), dict(mine.data)
            if theirs.pop("digest", None) != own.pop("digest", None) and theirs == own:
                theirs, own = "other rows of the same shape", own
            raise CheckpointError(
                f"{found.path}: its data is {theirs}, not {own}; "
                "a run continues on the data it began with"
            )
        self.trainer.load_state(state)
        if state.progress is not None:  # else saved by hand: the data begins anew
            self.progress = state.progress
            self._restore_callbacks(state)

    def _steps(self, batches_per_epoch: int | None) -> int | None:
        """Return the number of optimizer steps of an epoch; None for a stream of unknown length."""
        try:
            batches = batches_per_epoch or len(self.data)
        except TypeError:
            return None
        return -(-batches // self.trainer.accumulate)

    def _total(self, per_epoch: int | None) -> int | None:
        if per_epoch is None:
            return self.max_steps
        total = per_epoch * self.epochs
        return total if self.max_steps is None else min(total, self.max_steps)

    def _epoch(self, steps_per_epoch: int | None) -> None:
        p = self.progress
        self.trainer.begin_epoch(p.epoch)
        if p.position == 0:
            self._tell("on_epoch_begin")
        for batch in self._batches(steps_per_epoch):
            logs = self.trainer.train_batch(batch)
            p.count(logs["loss"], batch.rows_here if batch.total is None else batch.total)
            self._tell("on_step_end", logs)
            if "grad_norm" in logs and self._ends():  # not amid gradients that are being summed up
                return
        self.trainer.apply()
        if p.rows == 0:
            self.end("the data has no batches")
            return
        self._end_epoch()

    def _batches(self, steps_per_epoch: int | None) -> Iterator[Any]:
        p, share = self.progress, self.trainer.division.share
        if share is None:
            batches = self.data.epoch(p.epoch, p.position)
        else:
            batches = shared_epoch(self.data, p.epoch, p.position, share)
        for batch in self.trainer.clock.each("reading the data", batches):
            if steps_per_epoch is not None and p.position >= steps_per_epoch:
                return
            yield batch

    def _ends(self) -> bool:
        if self.interruption.reason:
            self.stop = self.interruption.reason
        elif self.max_steps is not None and self.trainer.steps >= self.max_steps:
            self.stop = f"max_steps={self.max_steps}"
        elif self.max_time is not None and time.monotonic() - self.started > self.max_time:
            self.stop = f"max_time={self.max_time}"
        self.stop = self._agreed(self.stop)
        return bool(self.stop)

    def _agreed(self, reason: str) -> str:
        """The reason to stop that any process has: they stop after the same step."""
        if self.group.size == 1:
            return reason
        return next(filter(None, self.group.gather("the end of a step", reason)), "")

    def _end_epoch(self) -> None:
        p, trainer = self.progress, self.trainer
        logs = {"epoch": p.epoch + 1, "step": trainer.steps, "loss": p.loss_sum / p.rows}
        if self.validation is not None:
            with trainer.clock("validation"):
                result = trainer.evaluate(self.validation)
            logs.update((f"val_{k}", v) for k, v in result.items())
        logs["lr"] = trainer.rates(back=1)[0]  # of the epoch's last step
        p.end_epoch(logs)
        trainer.schedule.end_epoch(logs)
        self._tell("on_epoch_end", logs)

    def _tell(self, event: str, *arguments: Any) -> None:
        with self.trainer.clock("callbacks and checkpoints"):
            for callback in self.callbacks:
                getattr(callback, event)(self, *arguments)

    def _named_callbacks(self) -> dict[str, Any]:
        """Return the callbacks by class and number, which another run with the same ones repeats."""
        named: dict[str, Any] = {}
        for callback in self.callbacks:
            kind = type(callback).__name__
            named[f"{kind}.{sum(k.startswith(f'{kind}.') for k in named)}"] = callback
        return named

    def callback_state(self) -> dict[str, Any]:
        """Return the state of every callback."""
        return {name: c.state() for name, c in self._named_callbacks().items()}

    def callback_tensors(self) -> dict[str, np.ndarray]:
        """Return the arrays that callbacks keep, as `<callback>/<name>`."""
        return {
            f"{name}/{key}": array
            for name, callback in self._named_callbacks().items()
            for key, array in callback.tensors().items()
        }

    def _restore_callbacks(self, state: TrainState) -> None:
        for name, callback in self._named_callbacks().items():
            if name in state.callbacks:
                prefix = f"{name}/"
                tensors = {
                    n.removeprefix(prefix): a
                    for n, a in state.callback_tensors.items()
                    if n.startswith(prefix)
                }
                callback.load_state(state.callbacks[name], tensors)


class Interruption:
    """Lets a first Ctrl-C end the run after the step at hand, so that it can be resumed to the same bits.

    A second one interrupts at once. Elsewhere than in the main thread nothing is changed.
    """

    WORD = "interrupted"

    def __init__(self):
        self.reason = ""
        self._old = None

    def __enter__(self) -> Interruption:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._old = signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: Any) -> None:
        self.reason = self.WORD
        signal.signal(signal.SIGINT, self._old)

    def __exit__(self, *_: object) -> None:
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)


def _description(data: Data) -> dict[str, Any]:
    names = ("rows", "batch_size", "shuffle")
    found = {n: getattr(data, n) for n in names if hasattr(data, n)}
    return {**found, "digest": data.digest()} if hasattr(data, "digest") else found


def split(data: Data, share: float, seed: int) -> tuple[ArrayData, ArrayData]:
    """Set a share of the rows aside, chosen by the seed; return the rest and what was set aside."""
    if not isinstance(data, ArrayData):
        raise ValueError("validation is a share, which needs arrays; give (x, y) for a stream")
    if not 0 < share < 1:
        raise ValueError(f"validation is {share}, expected a share between 0 and 1")
    count = max(1, round(data.rows * share))
    if count >= data.rows:
        raise ValueError(f"validation={share} of {data.rows} rows leaves none to train on")
    order = np.random.default_rng([seed, 2**31]).permutation(data.rows)
    kept, rest = np.sort(order[:count]), np.sort(order[count:])
    parts = []
    for rows, shuffle in ((rest, data.shuffle), (kept, False)):
        arrays = {n: a[rows] for n, a in data.arrays.items()}
        parts.append(ArrayData(arrays, data.batch_size, shuffle, data.seed))
    return parts[0], parts[1]
