"""Batch normalisation and dropout: in training, in evaluation, and in the file that is written."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from reference.seeded_dropout import seeded_dropout
from train import problems

from onnxgrad import Trainer


def cnn_trainer(**settings) -> tuple[Trainer, problems.Problem]:
    problem = problems.cnn()
    return Trainer(problem.model(), loss="cross_entropy", lr=1e-2, **settings), problem


def test_running_statistics_follow_the_batches():
    trainer, problem = cnn_trainer()
    expected_mean, expected_var = np.zeros(8), np.ones(8)
    for x, y in problem.batches[:5]:
        wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))[:, 0]
        conv = np.einsum("nhwij,cij->nchw", windows, trainer.get_weights()["conv1"][:, 0])
        expected_mean = 0.9 * expected_mean + 0.1 * conv.mean((0, 2, 3))
        expected_var = 0.9 * expected_var + 0.1 * conv.var((0, 2, 3))
        trainer.step(x, y)
    weights = trainer.get_weights()
    np.testing.assert_allclose(weights["mean1"], expected_mean, atol=1e-5)
    np.testing.assert_allclose(weights["var1"], expected_var, rtol=1e-5)


def test_frozen_batch_norm_keeps_its_statistics():
    trainer, problem = cnn_trainer(freeze_bn=True)
    trainer.step(*problem.batches[0])
    assert "mean1" not in trainer.get_weights()
    assert {"scale1", "shift1"} <= set(trainer.get_weights())
    assert not any(
        n.op_type == "BatchNormalization" and a.name == "training_mode" and a.i
        for n in trainer._plan.graph.model.proto.graph.node
        for a in n.attribute
    )


def test_a_layer_that_is_not_trained_keeps_its_statistics():
    trainer, _ = cnn_trainer(trainable="head")
    assert set(trainer.get_weights()) == {"w", "b"}


def test_shared_statistics_stay_frozen_and_it_is_said():
    problem = problems.cnn()
    model = problem.model()
    nodes = [n for n in model.graph.node if n.op_type == "BatchNormalization"]
    other = ["shift1", "scale1", "mean1", "var1"]  # not the layer itself, called again
    extra = helper.make_node("BatchNormalization", ["n1", *other], ["again"], name="again")
    model.graph.node.insert(2, extra)
    relu = next(n for n in model.graph.node if n.op_type == "Relu")
    relu.input[0] = "again"
    trainer = Trainer(model, loss="cross_entropy", tie="all")
    assert len(nodes) == 2
    assert "mean1" not in trainer.get_weights()
    assert "mean2" in trainer.get_weights()
    assert str(trainer.notes[-1]).startswith(
        "batch normalisation 'again' stays frozen: another use shares its statistics"
    )


def dropout_model(training: bool = False, rate: float = 0.25) -> onnx.ModelProto:
    """Dropout of x, times a weight of ones: the output shows the mask."""
    inputs = ["x", "rate", "on"] if training else ["x", "rate"]
    nodes = [
        helper.make_node("Dropout", inputs, ["d"]),
        helper.make_node("Mul", ["d", "w"], ["y"]),
    ]
    weights = {
        "rate": np.array(rate, np.float32), "on": np.array(True), "w": np.ones(40, np.float32),
    }  # fmt: skip
    shape = ("N", 40)
    io = [("x", problems.FLOAT, shape)], [("y", problems.FLOAT, shape)]
    return problems.make_model(nodes, *io, weights)


@pytest.mark.parametrize("training", [False, True], ids=["exported for inference", "for training"])
def test_dropout_acts_in_training_only(training):
    trainer = Trainer(dropout_model(training), loss="l1", optimizer="sgd", lr=0.0, seed=3)
    x, zeros = np.ones((8, 40), np.float32), np.zeros((8, 40), np.float32)
    np.testing.assert_array_equal(trainer.predict(x), x)
    for step in range(3):
        mask = seeded_dropout(x, [3, step], ratio=0.25)
        logs = trainer.step(x, zeros)
        assert logs["loss"] == pytest.approx(mask.mean(), rel=1e-6)
        gradient = trainer.store.gradient("w")
        np.testing.assert_allclose(gradient, mask.sum(0) / x.size, rtol=1e-5)
    assert trainer.evaluate(x, zeros)["loss"] == 1.0


def test_dropout_is_put_before_the_last_layer():
    problem = problems.mlp()
    trainer = Trainer(problem.model(), loss="cross_entropy", dropout=0.5)
    assert list(map(str, trainer.notes)) == ["the model has no Dropout: one is put behind 'a2'"]
    x, y = problem.batches[0]
    first, again = trainer.step(x, y)["loss"], trainer.step(x, y)["loss"]
    assert first != again
    trainer.predict(x)


def test_dropout_of_zero_switches_it_off():
    trainer = Trainer(dropout_model(), loss="l1", optimizer="sgd", lr=0.0, dropout=0.0)
    x = np.ones((2, 40), np.float32)
    assert trainer.step(x, np.zeros_like(x))["loss"] == 1.0


def test_the_file_is_in_inference_form(tmp_path):
    problem = problems.cnn()
    model = problem.model()
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            node.attribute.append(helper.make_attribute("training_mode", 1))
            node.output.extend([f"{node.output[0]}_mean", f"{node.output[0]}_var"])
    trainer = Trainer(model, loss="cross_entropy", lr=1e-2)
    for x, y in problem.batches[:3]:
        trainer.step(x, y)
    trainer.save(tmp_path / "tuned.onnx")
    written = onnx.load(tmp_path / "tuned.onnx")
    for node in written.graph.node:
        if node.op_type == "BatchNormalization":
            assert len(node.output) == 1
            assert [a.i for a in node.attribute if a.name == "training_mode"] == [0]
