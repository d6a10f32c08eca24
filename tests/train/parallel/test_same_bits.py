"""One, two, three or four processes: the same weights, losses and metrics, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from train.parallel.networks import BATCH, network
from train.parallel.threads import together

from onnxgrad import Trainer
from onnxgrad.train.callbacks import Checkpoint
from onnxgrad.train.losses import CrossEntropy
from onnxgrad.train.row_losses import RowWeighted

METRICS = "accuracy,f1,auc,perplexity"


def trainer_of(name: str, communicator=None, **more) -> tuple[Trainer, dict]:
    model, x, y = network(name)
    made = Trainer(
        model,
        loss="cross_entropy",
        lr=1e-2,
        metrics=METRICS,
        threads=1,
        communicator=communicator,
        **more,
    )
    return made, {"x": x, "y": y}


def fitted(name: str, size: int, epochs: int = 2, **more) -> list[tuple]:
    """What every process has in the end: weights, and the numbers of the epochs."""

    def work(communicator):
        trainer, data = trainer_of(name, communicator, **more)
        history = trainer.fit(**data, validation=0.2, epochs=epochs, batch_size=BATCH)
        return trainer.get_weights(), history.epochs

    results = together(size, work)
    for result in results:
        assert not isinstance(result, Exception), result
    return results


def assert_same(one: dict, other: dict) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm"])
def test_any_number_of_processes_trains_the_same_bits(name):
    (weights, epochs), *_ = fitted(name, 1)
    assert epochs[1]["loss"] < epochs[0]["loss"]
    for size in (2, 3, 4):
        for theirs, numbers in fitted(name, size):
            assert_same(weights, theirs)
            assert numbers == epochs


def test_without_a_communicator_micro_batches_give_the_same_bits():
    (expected, _), *_ = fitted("cnn", 2)
    trainer, data = trainer_of("cnn", micro_batches=8)
    trainer.fit(**data, validation=0.2, epochs=2, batch_size=BATCH)
    assert_same(expected, trainer.get_weights())


def test_the_gradient_is_that_of_the_whole_batch():
    """Of a network without batch normalisation: also of the short last batch, whose parts differ in rows."""
    plain, data = trainer_of("mlp", optimizer="sgd")
    plain.fit(**data, epochs=2, batch_size=BATCH)
    for more in ({}, {"reproducible": False}, {"micro_batches": 4, "accumulate": 1}):

        def work(communicator, more=more):
            trainer, data = trainer_of("mlp", communicator, optimizer="sgd", **more)
            trainer.fit(**data, epochs=2, batch_size=BATCH)
            return trainer.get_weights()

        for weights in together(2, work):
            for name, array in plain.get_weights().items():
                np.testing.assert_allclose(weights[name], array, rtol=2e-5, atol=2e-6)


def test_weights_of_rows_count_in_the_parts_too():
    """Σ w·l / Σ w of the batch, though every micro-batch has another Σ w; the first rows have 0."""
    model, x, y = network("mlp")
    weights = np.maximum(np.linspace(-1, 2, BATCH, dtype=np.float32), 0)
    found = []
    for parts in (1, 8):
        trainer = Trainer(
            model, RowWeighted(CrossEntropy()), "sgd", lr=0.1, threads=1, micro_batches=parts
        )
        target, weight = trainer.target_names
        logs = trainer.step({"x": x[:BATCH], target: y[:BATCH], weight: weights})
        found.append((logs["loss"], trainer.get_weights(flat=True)))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5, atol=1e-6)


def test_metrics_are_those_of_one_process():
    alone, data = trainer_of("mlp")
    expected = alone.evaluate(**data, batch_size=7)

    def work(communicator):
        trainer, data = trainer_of("mlp", communicator)
        return trainer.evaluate(**data, batch_size=7)

    for size in (2, 3):
        assert together(size, work) == [expected] * size


def test_a_batch_of_fewer_rows_than_processes():
    def work(communicator):
        trainer, data = trainer_of("mlp", communicator)
        logs = trainer.step(data["x"][:1], data["y"][:1])
        return trainer.get_weights(), logs

    results = [r for size in (1, 4) for r in together(size, work)]
    for weights, logs in results:
        assert_same(results[0][0], weights)
        assert logs == results[0][1]


def test_statistics_of_batch_normalisation_are_the_mean_of_the_parts():
    """new = (1 - m)·old + m·Σ rows·part / Σ rows; the rows of each micro-batch are normalised by their own."""
    model, x, y = network("cnn")
    trainer = Trainer(model, loss="cross_entropy", threads=1, micro_batches=2)
    trainer.step(x[:10], y[:10])
    halves = []
    for part in (slice(0, 5), slice(5, 10)):
        half = Trainer(model, loss="cross_entropy", threads=1)
        half.step(x[part], y[part])
        halves.append(half.get_weights())
    for name in ("mean1", "var1"):
        mean = (halves[0][name].astype(np.float64) + halves[1][name]) / 2
        np.testing.assert_allclose(trainer.get_weights()[name], mean, rtol=1e-6)


def test_four_processes_go_on_as_two(tmp_path):
    (expected, epochs), *_ = fitted("cnn", 1, epochs=3)

    def begin(communicator):
        trainer, data = trainer_of("cnn", communicator)
        trainer.fit(
            **data, validation=0.2, epochs=3, batch_size=BATCH, max_steps=4,
            callbacks=[Checkpoint(tmp_path, every_steps=2)],
        )  # fmt: skip

    def go_on(communicator):
        trainer, data = trainer_of("cnn", communicator)
        history = trainer.fit(**data, validation=0.2, epochs=3, batch_size=BATCH, resume=tmp_path)
        return trainer.get_weights(), history.epochs

    assert together(4, begin) == [None] * 4
    for weights, numbers in together(2, go_on):
        assert_same(expected, weights)
        assert numbers == epochs


def test_only_the_first_process_writes(tmp_path):
    def work(communicator):
        trainer, data = trainer_of("mlp", communicator)
        trainer.step(data["x"], data["y"])
        trainer.save(tmp_path / f"tuned-{communicator.rank}.onnx")
        trainer.save_checkpoint(tmp_path / f"checkpoint-{communicator.rank}")

    assert together(2, work) == [None, None]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint-0", "tuned-0.onnx"]


def test_dropout_differs_between_micro_batches():
    """Equal rows in all micro-batches: equal masks would give the gradient of one of them."""
    model, x, y = network("mlp")
    same = np.repeat(x[:1], 8, 0), np.repeat(y[:1], 8)
    norms = set()
    for parts in (1, 8):
        trainer = Trainer(model, loss="cross_entropy", dropout=0.5, threads=1, micro_batches=parts)
        trainer.step(*same)
        norms.add(trainer.gradient_norms()["w3"])
    single = Trainer(model, loss="cross_entropy", dropout=0.5, threads=1)
    single.step(x[:1], y[:1])
    assert len(norms) == 2
    assert single.gradient_norms()["w3"] not in norms
