"""One process fails: all of them stop, with its reason, and the steps so far can be continued."""

from __future__ import annotations

import numpy as np
import pytest
from train.parallel.networks import BATCH, network
from train.parallel.threads import together

from onnxgrad import DataError, DivergedError, ParallelError, Trainer
from onnxgrad.train.callbacks import Callback, Checkpoint
from onnxgrad.train.loop.epoch_loop import Interruption
from onnxgrad.train.parallel import Division, Group


def trainer_of(communicator, **more) -> tuple[Trainer, np.ndarray, np.ndarray]:
    model, x, y = network("mlp")
    made = Trainer(model, loss="cross_entropy", threads=1, communicator=communicator, **more)
    return made, x, y


class Failing(Callback):
    """Fails in one process after so many steps."""

    def __init__(self, rank: int, steps: int):
        self.rank, self.steps = rank, steps

    def on_step_end(self, loop, logs):
        if loop.group.rank == self.rank and loop.trainer.steps == self.steps:
            raise OSError("the disk of this machine is gone")


@pytest.mark.parametrize("rank", [0, 2])
def test_an_exception_in_one_process_ends_all_with_a_checkpoint(rank, tmp_path):
    def work(communicator):
        trainer, x, y = trainer_of(communicator)
        trainer.fit(
            x, y, epochs=5, batch_size=BATCH, callbacks=[Failing(rank, 4), Checkpoint(tmp_path)]
        )

    for number, error in enumerate(together(4, work)):
        if number == rank:
            assert isinstance(error, OSError)
        else:
            assert isinstance(error, ParallelError)
            assert (
                str(error) == f"process {rank} of 4 has stopped: the disk of this machine is gone"
            )
            assert error.rank == rank
    if rank:  # process 0 is alive and saves where all of them stand
        assert (tmp_path / "step-00000004").is_dir()


def test_bad_data_of_one_process_is_everybodys():
    """Row 12 of the batch belongs to the second of two processes."""

    def work(communicator):
        trainer, x, y = trainer_of(communicator)
        x = x.copy()
        x[12] = np.nan
        before = trainer.get_weights(flat=True)
        try:
            trainer.fit(x, y, epochs=1, batch_size=BATCH, shuffle=False)
        except Exception as error:
            return error, np.array_equal(before, trainer.get_weights(flat=True))

    (first, kept), (second, _) = together(2, work)
    assert isinstance(second, DataError)
    assert str(first) == "process 1 of 2 has stopped: input 'x' holds NaN in row 12"
    assert kept


def test_a_check_that_fails_in_one_process_fails_in_all():
    def work(communicator):
        trainer, x, y = trainer_of(communicator)
        trainer.check(x, y, batch_size=BATCH)  # nothing is wrong yet
        x = x.copy()
        x[BATCH] = np.nan  # in the second batch, which the second process looks at
        trainer.check(x, y, batch_size=BATCH)

    first, second = together(2, work)
    assert isinstance(second, DataError)
    assert isinstance(first, ParallelError)
    assert str(first) == f"process 1 of 2 has stopped: {second}"


def test_a_loss_that_is_not_finite_in_one_process_is_everybodys():
    def work(communicator):
        trainer, x, y = trainer_of(communicator)
        x = x[:BATCH].copy()
        x[-1] = np.inf  # infinity is allowed in data; the loss of the last micro-batch becomes NaN
        before = trainer.get_weights(flat=True)
        with pytest.raises(DivergedError, match="step 1: loss is not finite") as caught:
            trainer.step(x, y[:BATCH])
        assert np.array_equal(before, trainer.get_weights(flat=True))
        good = trainer.step(np.zeros_like(x), y[:BATCH])  # and they go on together
        return str(caught.value), good

    results = together(4, work)
    assert results[0][0].startswith("step 1: loss is not finite; the first such tensor is ")
    assert all(r == results[0] for r in results), results


def test_different_calls_are_noticed():
    def work(communicator):
        trainer, x, y = trainer_of(communicator)
        return trainer.evaluate(x, y) if communicator.rank else trainer.step(x, y)

    for error in together(2, work):
        assert isinstance(error, ParallelError)
        assert "the processes do different things" in str(error)


def test_different_models_are_noticed():
    def work(communicator):
        model, _, _ = network("cnn" if communicator.rank else "mlp")
        Trainer(model, loss="cross_entropy", threads=1, communicator=communicator)

    for error in together(2, work):
        assert isinstance(error, ParallelError)
        assert "process 1 has another model than process 0" in str(error)


def test_an_interruption_of_one_process_stops_all_after_the_same_step(tmp_path):
    class Interrupted(Callback):
        def on_step_end(self, loop, logs):
            if loop.group.rank == 1 and loop.trainer.steps == 2:
                loop.interruption.reason = Interruption.WORD

    def work(communicator):
        trainer, x, y = trainer_of(communicator)
        try:
            trainer.fit(
                x, y, epochs=9, batch_size=BATCH, callbacks=[Interrupted(), Checkpoint(tmp_path)]
            )
        except KeyboardInterrupt:
            return trainer.steps

    assert together(2, work) == [2, 2]
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000002"]


def test_a_failure_in_an_inner_block_is_told_once():
    def work(communicator):
        group, inner = Group(communicator), Group(communicator)  # a job's, and that of its Trainer
        heard = []
        try:
            with group.together():
                try:
                    with inner.together():
                        if communicator.rank == 1:
                            raise KeyError("inner")
                        group.gather("waiting")
                except KeyError as error:
                    raise ValueError("outer") from error
        except (ValueError, ParallelError) as error:
            heard.append(type(error).__name__)
        return heard + group.gather("afterwards", communicator.rank)  # in step again

    assert together(2, work) == [["ParallelError", 0, 1], ["ValueError", 0, 1]]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (dict(micro_batches=6), "micro_batches is 6, expected a power of two, or None"),
        (dict(micro_batches=2), "4 processes cannot share 2 micro-batches: take micro_batches=4 or more"),
        (dict(threads=0), "threads is 0, expected an integer from 1 to 1024, or None"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(settings, sentence):
    def work(communicator):
        model, _, _ = network("mlp")
        Trainer(model, loss="cross_entropy", communicator=communicator, **settings)

    for error in together(4, work):
        assert isinstance(error, ValueError)
        assert str(error).startswith(sentence)


def test_a_communicator_of_another_kind_is_refused():
    with pytest.raises(
        ValueError, match=r"communicator is a int, expected MPI.COMM_WORLD of mpi4py"
    ):
        Division(3, None, True)
