"""A new network as exporters write it, by `Trainer`, `inspect` and the command line: what is trained, and as what."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from job.problem import run
from model import merged_models as models
from onnx import TensorProto, helper

from onnxgrad import Trainer, inspect


def weights(model, **options) -> list[str]:
    return list(Trainer(model, loss="mse", **options).get_weights())


def trained(model) -> Trainer:
    """A trainer after three steps on random data."""
    trainer, rng = Trainer(model, loss="mse", optimizer="sgd", lr=0.1), np.random.default_rng(1)
    for _ in range(3):
        x = rng.normal(size=(8, 4)).astype(np.float32)
        trainer.step(x, rng.normal(size=trainer.predict(x).shape).astype(np.float32))
    return trainer


def one_tensor_for_all() -> onnx.ModelProto:
    """Two layers by the newer exporter: scale and variance are one tensor, bias and mean another."""
    nodes = [
        models.node("MatMul", "x w1", "a1"),
        models.node("BatchNormalization", "a1 n1.weight n1.bias n1.bias n1.weight", "b1", "n1"),
        models.node("MatMul", "b1 w2", "a2"),
        models.node("BatchNormalization", "a2 n1.weight n1.bias n1.bias n1.weight", "y", "n2"),
    ]
    tensors = {"w1": models.normal(4, 4), "w2": models.normal(4, 4)}
    return models.model(
        nodes, {**tensors, "n1.weight": models.ones(4), "n1.bias": models.zeros(4)}, y=("N", 4)
    )


@pytest.mark.parametrize("make", [models.torchscript_norms, one_tensor_for_all])
def test_batch_norms_have_scales_and_statistics_of_their_own(make):
    """Statistics were trained as weights, until the variance was negative and the loss NaN."""
    trainer = trained(make())
    now = trainer.get_weights()
    assert not [n for n in trainer.notes if "frozen" in str(n)]
    scales = [a for n, a in now.items() if n.endswith("weight")]
    assert len(scales) == 2
    assert not np.allclose(*scales)
    means = [a for n, a in now.items() if "mean" in n]
    assert len(means) == 2
    assert min(np.abs(a).max() for a in means) > 0


def test_layers_with_batch_norm_bear_a_usual_rate():
    """With one tensor for scales and variances it diverged."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(256, 4)).astype(np.float32)
    labels = (x.sum(1) > 0).astype(np.int64) + (x[:, 0] > 1)
    trainer = Trainer(models.torchscript_norms(), loss="cross_entropy", optimizer="sgd", lr=0.3)
    history = trainer.fit(x, labels, epochs=10, batch_size=16)
    assert history["loss"][-1] < 0.6 * history["loss"][0]


def test_what_several_nodes_share_is_named_after_their_scopes():
    assert weights(models.dynamo_norms()) == ["a.weight", "a.bias", "w", "b.1.weight", "b.1.bias"]


def one_matrix(through: str) -> onnx.ModelProto:
    """Two layers with one matrix of different numbers."""
    ways = {
        "Identity": [models.node("Identity", "w", "v")],
        "Reshape": [models.node("Reshape", "w shape", "v")],
        "Cast": [models.node("Cast", "w", "d", to=11), models.node("Cast", "d", "v", to=1)],
        "Transpose": [models.node("Transpose", "w", "v", perm=[1, 0])],
    }
    nodes = [*ways[through], models.node("MatMul", "x w", "h"), models.node("MatMul", "h v", "y")]
    tensors = {"w": models.normal(4, 4), "shape": np.array([4, 4])}
    return models.model(nodes, tensors, y=("N", 4))


@pytest.mark.parametrize("through", ["Identity", "Reshape", "Cast", "Transpose"])
def test_one_parameter_of_different_numbers_stays_one(through):
    assert weights(one_matrix(through)) == ["w"]


def test_a_head_that_is_written_as_the_transpose_of_the_embedding_is_the_same_parameter():
    assert weights(models.tied_embedding(transposed=True)) == ["embed.weight"]


def test_flags_decide_otherwise(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "n2.weight" not in weights(models.torchscript_norms(), tie="all")
    assert len(weights(models.tied_embedding(), untie="embed.weight")) == 2
    onnx.save(models.torchscript_norms(), "m.onnx")
    np.savez("d.npz", x=models.normal(40, 4), y=models.normal(40, 3))
    line = ("train", "m.onnx", "--data", "d.npz", "-o", "t.onnx", "--epochs", 1)
    assert run(capsys, *line, "--tie", "all")[0] == 0
    assert "n2.weight" not in {t.name for t in onnx.load("t.onnx").graph.initializer}
    for flag in ("--tie", "--untie"):
        code, _, err = run(capsys, *line, flag, "nothing")
        assert code == 2
        assert f"{flag[2:]} names 'nothing', which is not a shared tensor of the model" in err


def test_inspect_lists_what_is_shared_and_what_will_happen(tmp_path, capsys):
    (said,) = [w for w in inspect(models.torchscript_norms()).warnings if "n1.weight" in w]
    assert "stood for 4 parameters and is untied" in said
    assert said in map(str, Trainer(models.torchscript_norms(), loss="mse").notes)
    (said,) = [w for w in inspect(models.tied_embedding()).warnings if "embed.weight" in w]
    assert "is one parameter in 2 places and stays one" in said
    onnx.save(models.torchscript_norms(), tmp_path / "m.onnx")
    screen = " ".join(run(capsys, "inspect", tmp_path / "m.onnx")[1].split())
    assert "stood for 4 parameters and is untied (all its elements are 1)" in screen


def test_the_written_names_are_those_of_the_next_training(tmp_path):
    trainer = trained(models.torchscript_norms())
    trainer.save(tmp_path / "t.onnx")
    written = {t.name for t in onnx.load(tmp_path / "t.onnx").graph.initializer}
    assert set(trainer.get_weights()) <= written
    again = Trainer(tmp_path / "t.onnx", loss="mse")
    assert set(again.get_weights()) == set(trainer.get_weights())


# ---- what is a weight


def positions() -> np.ndarray:
    angles = np.arange(64)[:, None] / 10000 ** (np.arange(0, 16, 2) / 16)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(64, 16)


NO_WEIGHTS = {
    "-inf": ("Add", np.triu(np.full((8, 8), -np.inf), 1)),
    "-1e9": ("Add", np.triu(np.full((8, 8), -1e9), 1)),
    "-65504": ("Add", np.triu(np.full((8, 8), -65504.0), 1)),
    "sinusoids": ("Add", positions()),
    "Hann": ("Mul", np.hanning(400)),
    "grid": ("Add", np.stack(np.meshgrid(np.arange(8), np.arange(8)), -1).reshape(64, 2) + 0.5),
    "anchors": ("Mul", np.array([[10.0, 13], [16, 30], [33, 23]])),
    "strides": ("Mul", np.repeat([8.0, 16, 32], [64, 16, 4])[:, None]),
}


@pytest.mark.parametrize("title", NO_WEIGHTS)
def test_what_is_no_weight_is_not_trained_unless_named(title):
    op, table = NO_WEIGHTS[title]
    model = models.beside(table.astype(np.float32), op)
    trainer = Trainer(model, loss="mse")
    assert "table" not in trainer.get_weights()
    said = [str(n) for n in trainer.notes if "'table'" in str(n)]
    assert said == [w for w in inspect(model).warnings if "'table'" in w]
    assert "is not trained" in said[0]
    (row,) = [p for p in inspect(model).parameters if p.name == "table"]
    assert (row.trainable, bool(row.why)) == (False, True)
    assert "table" in weights(model, trainable=["all", "table"])


def test_the_scale_of_the_input_and_of_quantisation_are_not_trained():
    nodes = [models.node("Sub", "x mean", "c"), models.node("Div", "c std", "n")]
    nodes += [models.node("QuantizeLinear", "w scale zero", "q", axis=0)]
    nodes += [models.node("DequantizeLinear", "q scale zero", "d", axis=0)]
    nodes += [models.node("Conv", "n d", "y")]
    tensors = {
        "mean": np.float32([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1),
        "std": np.float32([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1),
        "scale": np.float32([0.02, 0.03]), "zero": np.zeros(2, np.int8), "w": models.normal(2, 3, 3, 3),
    }  # fmt: skip
    model = models.model(nodes, tensors, x=("N", 3, 8, 8), y=("N", 2, 6, 6))
    assert weights(model) == ["w"]


# ---- half precision

HALVES = {
    "float16": (TensorProto.FLOAT16, np.float16),
    "bfloat16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
}


def half(kind: str) -> onnx.ModelProto:
    code, dtype = HALVES[kind]
    rng = np.random.default_rng(0)

    def tensor(name, *shape):
        array = (0.5 * rng.normal(size=shape)).astype(np.float32).astype(dtype)
        return helper.make_tensor(name, code, shape, array.tobytes(), raw=True)

    nodes = [models.node("MatMul", "x w", "h"), models.node("Add", "h b", "r")]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [*nodes, models.node("MatMul", "r v", "y")], "g",
        [info("x", code, ("N", 4))], [info("y", code, ("N", 2))],
        [tensor("w", 4, 8), tensor("b", 8), tensor("v", 8, 2)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("kind", HALVES)
def test_half_precision_trains_in_float32_and_is_written_as_it_came(kind, tmp_path):
    """The model has "no float32 or float64 output to train on", and inspect called it trainable."""
    trainer = Trainer(half(kind), loss="mse", optimizer="sgd", lr=1e-6)
    first = {n: a.copy() for n, a in trainer.get_weights().items()}
    assert list(first) == [p.name for p in inspect(half(kind)).parameters if p.trainable]
    assert {a.dtype for a in first.values()} == {np.dtype(np.float32)}
    x = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    trainer.fit(x, x[:, :2], batch_size=16)
    trainer.save(tmp_path / "t.onnx")
    kinds = {t.data_type for t in onnx.load(tmp_path / "t.onnx").graph.initializer}
    assert kinds == {HALVES[kind][0]}
    trainer.save_checkpoint(tmp_path / "c")  # steps that half precision would lose
    other = Trainer(half(kind), loss="mse", optimizer="sgd", lr=1e-6)
    other.load_checkpoint(tmp_path / "c")
    np.testing.assert_array_equal(other.get_weights()["w"], trainer.get_weights()["w"])
    assert 0 < np.abs(other.get_weights()["w"] - first["w"]).max() < 2**-12


def test_keep_float32(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    onnx.save(half("float16"), "m.onnx")
    np.savez("d.npz", x=models.normal(40, 4), y=models.normal(40, 2))
    line = ("train", "m.onnx", "--data", "d.npz", "-o", "t.onnx", "--epochs", 1, "--keep-float32")
    code, _, err = run(capsys, *line)
    assert (code, err) == (0, "")
    assert {t.data_type for t in onnx.load("t.onnx").graph.initializer} == {TensorProto.FLOAT}
