"""Callbacks and schedules by themselves: a made-up loop shows them numbers, and every decision is looked at."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from onnxgrad.train import callbacks, schedules
from onnxgrad.train.callbacks import Best, EarlyStopping


class Loop:
    """As much of an EpochLoop as callbacks see."""

    def __init__(self, metrics=()):
        self.ended, self.epoch, self.weights = [], 0, 0.0
        self.trainer = SimpleNamespace(
            metrics=[SimpleNamespace(name=n, larger=larger) for n, larger in metrics],
            get_weights=lambda: {"w": np.array(self.weights)},
            set_weights=lambda w: setattr(self, "weights", float(w["w"])),
            steps=0,
        )

    def end(self, why: str) -> None:
        self.ended.append(why)


def shown(callback, values, loop=None, monitor: str = "val_loss") -> int | None:
    """Show the callback one number an epoch; return the epoch after which it ended the run."""
    loop = loop or Loop()
    for epoch, value in enumerate(values):
        loop.weights = float(epoch)
        callback.on_epoch_end(loop, {"loss": 1.0, monitor: value})
        if loop.ended:
            return epoch
    return None


@pytest.mark.parametrize(
    ("patience", "values", "ends"),
    [(2, [5, 4, 4, 4], 3), (2, [5, 6, 4, 5, 3, 4, 5], 6), (1, [5, 5], 1), (3, [5, 6, 6, 4, 6, 6], None),
     (2, [5, math.nan, math.nan], 2), (2, [math.nan, math.nan], 1), (2, [math.nan, 5, 6, 6], 3)],
)  # fmt: skip
def test_patience_counts_from_the_last_improvement(patience, values, ends):
    loop = Loop()
    assert shown(EarlyStopping(patience=patience), values, loop) == ends
    if ends is not None:
        assert loop.ended == [f"val_loss did not improve for {patience} epochs"]


def test_a_gain_must_be_larger_than_the_least():
    assert shown(EarlyStopping(patience=1, min_delta=0.5), [5, 4.5]) == 1
    assert shown(EarlyStopping(patience=1, min_delta=-0.5), [5, 4.5]) == 1
    assert shown(EarlyStopping(patience=1, min_delta=0.5), [5, 4.4]) is None


def test_the_best_weights_come_back_unless_told_otherwise():
    loop, stop = Loop(), EarlyStopping(patience=2)
    shown(stop, [5, 3, 4, 4], loop)
    stop.on_fit_end(loop)
    assert loop.weights == 1
    loop, stay = Loop(), EarlyStopping(patience=2, restore_best=False)
    shown(stay, [5, 3, 4, 4], loop)
    stay.on_fit_end(loop)
    assert loop.weights == 3
    assert stay.tensors() == {}


def test_what_was_seen_before_a_break_counts():
    first = EarlyStopping(patience=2)
    shown(first, [5, 3, 4])
    again = EarlyStopping(patience=2)
    again.load_state(first.state(), first.tensors())
    assert first.state() == {"best": 3, "bad": 1}
    assert shown(again, [3.5]) == 0
    loop = Loop()
    again.on_fit_end(loop)
    assert loop.weights == 1


@pytest.mark.parametrize(
    ("mode", "monitor", "larger"),
    [("auto", "val_loss", False), ("auto", "val_accuracy", True), ("auto", "accuracy", True),
     ("auto", "val_mae", False), ("max", "val_loss", True), ("min", "val_accuracy", False)],
)  # fmt: skip
def test_which_direction_is_better(mode, monitor, larger):
    loop = Loop([("accuracy", True), ("mae", False)])
    best = Best(monitor, mode)
    assert best.better(loop, {monitor: 1.0})
    assert best.better(loop, {monitor: 2.0}) == larger
    assert not best.better(loop, {monitor: best.value})


def test_what_cannot_be_watched():
    with pytest.raises(ValueError, match="mode is 'up', expected auto, min or max"):
        Best("loss", "up")
    with pytest.raises(ValueError, match="monitor is 'val_loss', and an epoch has loss, lr"):
        Best("val_loss").better(Loop(), {"loss": 1.0, "lr": 0.1})
    with pytest.raises(ValueError, match="save_total_limit is 0, expected at least 1"):
        callbacks.Checkpoint("x", save_total_limit=0)


def test_logs_as_text():
    epochs = [{"epoch": 1, "loss": 2.5}, {"epoch": 2, "loss": 1.5, "val_loss": 3.0}]
    assert callbacks.CSVLogger("x").text(epochs) == "epoch,loss,val_loss\n1,2.5,\n2,1.5,3.0\n"
    assert callbacks.CSVLogger("x").text([]) == ""
    assert callbacks.JSONLLogger("x").text(epochs[:1]) == '{"epoch": 1, "loss": 2.5}\n'


# ---- schedules


def rates(schedule, steps, base: float = 1.0) -> list[float]:
    return [round(schedule.rate(base, step), 6) for step in steps]


def test_lengths_that_fit_knows_or_that_are_given():
    bound = schedules.Cosine(floor=0.2).bound(4)
    assert rates(bound, (0, 2, 4, 9)) == [1.0, 0.6, 0.2, 0.2]
    assert schedules.Cosine(total=7).bound(4).total == 7
    assert rates(schedules.Linear(end=0.5).bound(2), (0, 1, 2, 5)) == [1.0, 0.75, 0.5, 0.5]
    assert rates(schedules.Linear(total=0), (0, 1)) == [1.0, 0.0]
    for kind in (schedules.Cosine, schedules.Linear):
        with pytest.raises(ValueError, match=f"{kind.__name__} needs the number of steps"):
            kind().bound(None)


def test_epochs_that_fit_knows_or_that_are_given():
    assert rates(schedules.Step(every=2, gamma=0.5).bound(None, 3), (0, 5, 6, 11, 12)) == [
        1,
        1,
        0.5,
        0.5,
        0.25,
    ]
    assert schedules.Step(per_epoch=2).bound(None, 3).per_epoch == 2
    assert rates(schedules.Exponential(gamma=0.5).bound(9, 2), (0, 1, 2, 4)) == [1, 1, 0.5, 0.25]
    with pytest.raises(ValueError, match="Exponential counts epochs and needs the steps of one"):
        schedules.Exponential().bound(9, None)
    with pytest.raises(ValueError, match="every is 0, expected at least 1 epoch"):
        schedules.Step(every=0)


@pytest.mark.parametrize("name", ["step", "exponential"])
def test_a_loop_of_ones_own_has_no_epochs(name):
    """There every step counted as an epoch: after 330 of them the rate was 1e-33 of itself."""
    schedule = schedules.resolve(name, warmup=2)
    assert schedule.rate(1.0, 1) == 0.5
    with pytest.raises(
        ValueError, match=f"{name.title()} counts epochs and needs the steps of one"
    ):
        schedule.rate(1.0, 2)


def test_a_warmup_passes_on_what_it_is_told():
    made = schedules.Warmup(2, schedules.Linear(), start=0.5).bound(6)
    assert rates(made, (0, 1, 2, 4, 6), base=2.0) == [1.0, 1.5, 2.0, 1.0, 0.0]
    assert schedules.Warmup(9, schedules.Linear()).bound(6).then.total == 1
    assert schedules.Warmup(1, schedules.Step()).bound(None, 5).then.per_epoch == 5
    plateau = schedules.ReduceOnPlateau(patience=0, factor=0.5)
    warm = schedules.Warmup(1, plateau)
    for loss in (1.0, 2.0):
        warm.end_epoch({"val_loss": loss})
    assert warm.rate(1.0, 5) == 0.5
    other = schedules.Warmup(1, schedules.ReduceOnPlateau(patience=0, factor=0.5))
    other.load_state(warm.state())
    assert other.rate(1.0, 5) == 0.5


def plateau(values, **settings) -> list[float]:
    schedule = schedules.ReduceOnPlateau(**{"factor": 0.5, "patience": 1, **settings})
    found = []
    for value in values:
        schedule.end_epoch({"val_loss": value})
        found.append(schedule.rate(1.0, 0))
    return found


def test_plateaus():
    assert plateau([1, 1, 1, 1, 1]) == [1, 1, 0.5, 0.5, 0.25]
    assert plateau([1, 2, 0.5, 2, 2]) == [1, 1, 1, 1, 0.5]
    assert plateau([1, 1, 1, 1, 1, 1], cooldown=2) == [1, 1, 0.5, 0.5, 0.5, 0.5]
    assert plateau([1, 2, 3, 4], mode="max") == [1, 1, 1, 1]
    assert plateau([4, 3, 2], mode="max") == [1, 1, 0.5]
    assert plateau([1] * 7, min_lr=0.3)[-1] == 0.3
    assert plateau([1, 0.95, 0.92], threshold=0.1) == [1, 1, 0.5]
    assert plateau([1, 0.89, 0.89], threshold=0.1) == [1, 1, 1]
    schedule = schedules.ReduceOnPlateau(min_lr=5.0)
    assert schedule.rate(1.0, 0) == 1.0
    said = (
        "monitor is 'val_loss', and an epoch has loss, lr; give fit a validation, or name another"
    )
    with pytest.raises(ValueError, match=said):  # it never saw a plateau, and said nothing
        schedule.end_epoch({"loss": 1.0, "lr": 0.1})


@pytest.mark.parametrize(
    ("words", "made"),
    [(("step", 5, 0.5), schedules.Step(every=5, gamma=0.5)), (("step",), schedules.Step()),
     (("Exponential", 0, 0.7), schedules.Exponential(gamma=0.7)),
     (("cosine", 0, 0.0, 0.01), schedules.Cosine(floor=0.01)),
     (("plateau", 4, 0.3, 0.02), schedules.ReduceOnPlateau(patience=4, factor=0.3, min_lr=0.02)),
     (("constant",), schedules.Constant()), (("linear",), schedules.Linear())],
)  # fmt: skip
def test_schedules_by_name(words, made):
    assert schedules.named(*words) == made


@pytest.mark.parametrize(
    ("words", "text"),
    [(("cosine", 5), "the schedule 'cosine' has no every"), (("linear", 0, 0.5), "the schedule 'linear' has no factor"),
     (("step", 0, 0.0, 0.1), "the schedule 'step' has no floor"), (("wild",), "'wild', expected one of constant")],
)  # fmt: skip
def test_settings_that_a_schedule_does_not_have(words, text):
    with pytest.raises(ValueError, match=text):
        schedules.named(*words)


def test_what_means_a_schedule():
    own = schedules.Step()
    assert schedules.resolve(own) is own
    assert schedules.resolve(None) == schedules.Constant()
    assert schedules.resolve("Cosine") == schedules.Cosine()
    assert schedules.resolve("linear", 3) == schedules.Warmup(3, schedules.Linear())
    with pytest.raises(ValueError, match="schedule is 'x', expected one of"):
        schedules.resolve("x")
    with pytest.raises(ValueError, match="schedule is a float, expected a name or a schedule"):
        schedules.resolve(0.1)
