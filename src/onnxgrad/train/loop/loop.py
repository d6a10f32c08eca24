"""The loop of `fit`: epochs of batches, validation, callbacks; and where a run stands."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxgrad.data.arrays import ArrayData, make_data
from onnxgrad.errors import CheckpointError


@dataclass
class History:
    """What happened: one dict of numbers per epoch, and why it ended."""

    epochs: list[dict[str, float]] = field(default_factory=list)
    stopped: str = ""  # "", or why the run ended early
    seconds: float = 0.0

    def __getitem__(self, key: str) -> list[float]:
        """Return one column, as `history["val_loss"]`."""
        return [logs[key] for logs in self.epochs if key in logs]

    @property
    def history(self) -> dict[str, list[float]]:
        """The columns by name, as Keras has them."""
        keys = dict.fromkeys(k for logs in self.epochs for k in logs)
        return {k: self[k] for k in keys}


@dataclass
class Progress:
    """Where a run stands. A checkpoint holds it, and a resumed run begins from it."""

    epoch: int = 0  # complete epochs
    position: int = 0  # batches of the current epoch that are done
    loss_sum: float = 0.0  # of those batches, weighted by rows
    rows: int = 0
    epochs: list[dict[str, float]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)  # what the position counts in

    def state(self) -> dict[str, Any]:
        """Return this as plain data."""
        return dict(vars(self))


class Loop:
    """One call of `fit`. Callbacks get it, and may set `stop` to a reason."""

    def __init__(self, trainer, data, validation, epochs, batch_size, callbacks):
        self.trainer, self.data, self.epochs = trainer, data, epochs
        self.batch_size = batch_size
        self.validation = self._validation(validation)
        self.callbacks = sorted(callbacks, key=lambda c: getattr(c, "order", 0))
        self.progress = Progress(data=_description(self.data))
        self.stop = ""
        self.total_steps: int | None = None
        self.started = 0.0

    def _validation(self, validation: Any) -> Any:
        names, seed = self.trainer._setup.names, self.trainer.seed
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
        self._bind_schedule(steps_per_epoch)
        if resume is not None:
            state = trainer.load_checkpoint(resume)
            self._restore(state)
        with Interruption() as interruption:
            self.interruption = interruption
            self._tell("on_fit_begin")
            try:
                while self.progress.epoch < self.epochs and not self.stop:
                    self._epoch(steps_per_epoch)
                    self.stop = self.stop or interruption.reason
                if interruption.reason or self.progress.position:
                    self._tell("on_interrupt")
            finally:
                self._tell("on_fit_end")
        if interruption.reason:
            raise KeyboardInterrupt
        return History(self.progress.epochs, self.stop, time.monotonic() - self.started)

    def _restore(self, state: dict[str, Any]) -> None:
        if "progress" not in state:
            return  # saved by hand: the weights and the optimizer continue, the data begins anew
        mine, self.progress = self.progress.data, Progress(**state["progress"])
        if self.progress.data != mine:
            raise CheckpointError(
                f"{state['path']}: its data is {self.progress.data}, not {mine}; "
                "a run continues on the data it began with"
            )
        self._restore_callbacks(state)

    def _bind_schedule(self, steps_per_epoch: int | None) -> None:
        trainer, total = self.trainer, None
        try:
            batches = steps_per_epoch or len(self.data)
            total = -(-batches // trainer._stepper.accumulate) * self.epochs
        except TypeError:
            pass  # a stream of unknown length
        if self.max_steps is not None:
            total = self.max_steps if total is None else min(total, self.max_steps)
        self.total_steps = total
        trainer.schedule = trainer.schedule.bound(total)

    def _epoch(self, steps_per_epoch: int | None) -> None:
        p = self.progress
        if p.position == 0:
            self._tell("on_epoch_begin")
        for batch in self._batches(steps_per_epoch):
            logs = self.trainer.train_batch(batch)
            rows = next((len(a) for a in batch.arrays.values() if np.ndim(a)), 1)
            p.position, p.rows = p.position + 1, p.rows + rows
            p.loss_sum += logs["loss"] * rows
            self._tell("on_step_end", logs)
            if "grad_norm" in logs and self._ends():  # not amid gradients that are being summed up
                return
        norm = self.trainer.apply()
        if p.rows == 0:
            self.stop = "the data has no batches"
            return
        self._end_epoch(norm)

    def _batches(self, steps_per_epoch: int | None) -> Iterator[Any]:
        p = self.progress
        batches = self.data.epoch(p.epoch, p.position)
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
        return bool(self.stop)

    def _end_epoch(self, norm: float | None) -> None:
        p, trainer = self.progress, self.trainer
        logs = {"epoch": p.epoch + 1, "step": trainer.steps, "loss": p.loss_sum / p.rows}
        if self.validation is not None:
            with trainer.clock("validation"):
                result = trainer._evaluation.evaluate(self.validation, trainer.metrics)
            logs.update((f"val_{k}", v) for k, v in result.items())
        logs["lr"] = trainer._rates()[0]
        p.epochs.append(logs)
        p.epoch, p.position, p.loss_sum, p.rows = p.epoch + 1, 0, 0.0, 0
        schedule = getattr(trainer.schedule, "then", trainer.schedule)
        if hasattr(schedule, "observe") and schedule.monitor in logs:
            schedule.observe(logs[schedule.monitor])
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

    def _restore_callbacks(self, state: dict[str, Any]) -> None:
        saved, tensors = state.get("callbacks", {}), state.get("tensors", {})
        for name, callback in self._named_callbacks().items():
            if name in saved:
                own = {
                    n.removeprefix(f"{name}/"): a
                    for n, a in tensors.items()
                    if n.startswith(f"{name}/")
                }
                callback.load_state(saved[name], own)


class Interruption:
    """Lets a first Ctrl-C end the run after the step at hand, so that it can be resumed to the same bits.

    A second one interrupts at once. Elsewhere than in the main thread nothing is changed.
    """

    def __init__(self):
        self.reason = ""
        self._old = None

    def __enter__(self) -> Interruption:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._old = signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: Any) -> None:
        self.reason = "interrupted"
        signal.signal(signal.SIGINT, self._old)

    def __exit__(self, *_: object) -> None:
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)


def _description(data: Any) -> dict[str, Any]:
    names = ("rows", "batch_size", "shuffle")
    return {n: getattr(data, n) for n in names if hasattr(data, n)}


def split(data: Any, share: float, seed: int) -> tuple[ArrayData, ArrayData]:
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
