"""Half precision in, float32 for the training, half precision out."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgrad import Trainer, inspect
from onnxgrad.errors import ExportError
from onnxgrad.model import precision
from onnxgrad.train.callbacks import Checkpoint

TYPES = {
    "float16": (TensorProto.FLOAT16, np.float16),
    "bfloat16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
}


def network(kind: str, shape=("N", 4)) -> onnx.ModelProto:
    """Two layers in half precision, with a Cast, a Constant and a Clip in between."""
    code, dtype = TYPES[kind]
    rng = np.random.default_rng(0)

    def tensor(name, *size):
        array = (0.5 * rng.normal(size=size)).astype(np.float32).astype(dtype)
        return helper.make_tensor(name, code, size, array.tobytes(), raw=True)

    half = helper.make_tensor("half", code, [], np.asarray(0.5, dtype).tobytes(), raw=True)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Cast", ["r"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["wide"], ["narrow"], to=code),
        helper.make_node("Constant", [], ["k"], value=half),
        helper.make_node("Mul", ["narrow", "k"], ["m"]),
        helper.make_node("MatMul", ["m", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", code, shape)],
        [helper.make_tensor_value_info("y", code, ("N", 2))],
        [tensor("w", 4, 8), tensor("b", 8), tensor("v", 8, 2)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def data():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(64, 4)).astype(np.float32)
    return x, np.stack([x.sum(1), x[:, 0]], 1)


def types(path) -> set[int]:
    return {t.data_type for t in onnx.load(path).graph.initializer}


@pytest.mark.parametrize("kind", TYPES)
def test_inspect_and_trainer_agree(kind):
    report = inspect(network(kind))
    assert [(p.name, p.type, p.trainable) for p in report.parameters if p.size > 1] == [
        ("w", kind, True), ("b", kind, True), ("v", kind, True),
    ]  # fmt: skip
    text = f"the model is {kind}: it trains in float32 and is written in {kind}; --keep-float32 writes float32"
    assert text in report.warnings
    trainer = Trainer(network(kind), loss="mse")
    assert list(trainer.get_weights()) == ["w", "b", "v"]
    assert all(a.dtype == np.float32 for a in trainer.get_weights().values())
    assert text in map(str, trainer.notes)


def test_float16_trains_and_is_written_as_it_came(tmp_path):
    x, y = data()
    trainer = Trainer(network("float16"), loss="mse", optimizer="adam", lr=0.02)
    history = trainer.fit(x, y, epochs=20, batch_size=16)
    assert history.epochs[-1]["loss"] < 0.1 * history.epochs[0]["loss"]
    trainer.save(tmp_path / "tuned.onnx")
    assert types(tmp_path / "tuned.onnx") == {TensorProto.FLOAT16}
    session = onnxruntime.InferenceSession(tmp_path / "tuned.onnx")
    assert session.get_inputs()[0].type == "tensor(float16)"
    found = session.run(None, {"x": x.astype(np.float16)})[0]
    np.testing.assert_allclose(found, trainer.predict(x), atol=0.03)
    for tensor in onnx.load(tmp_path / "tuned.onnx").graph.initializer:
        exact = trainer.get_weights()[tensor.name]
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), exact.astype(np.float16))


@pytest.mark.parametrize("kind", TYPES)
def test_keep_float32_writes_what_was_trained(kind, tmp_path):
    x, y = data()
    trainer = Trainer(network(kind), loss="mse", keep_float32=True)
    trainer.fit(x, y, batch_size=16)
    trainer.save(tmp_path / "tuned.onnx")
    assert types(tmp_path / "tuned.onnx") == {TensorProto.FLOAT}
    session = onnxruntime.InferenceSession(tmp_path / "tuned.onnx")
    np.testing.assert_allclose(session.run(None, {"x": x})[0], trainer.predict(x), atol=1e-5)


@pytest.mark.parametrize("keep", [False, True], ids=["in its type", "in float32"])
@pytest.mark.parametrize("kind", TYPES)
def test_weights_in_a_file_of_their_own(kind, keep, tmp_path, monkeypatch):
    """Written in float32, the file was looked for in the current folder."""
    monkeypatch.chdir(tmp_path)
    outside = dict(save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "half").mkdir()
    onnx.save(network(kind), "half/m.onnx", **outside)
    trainer = Trainer("half/m.onnx", loss="mse", trainable="v", keep_float32=keep)
    trainer.step(*data())
    trainer.save("out/tuned.onnx")
    assert types("out/tuned.onnx") == {TensorProto.FLOAT if keep else TYPES[kind][0]}
    if keep or kind == "float16":
        session = onnxruntime.InferenceSession("out/tuned.onnx")
        x = data()[0].astype(np.float32 if keep else np.float16)
        found = session.run(None, {"x": x})[0]
        np.testing.assert_allclose(found, trainer.predict(x.astype(np.float32)), atol=0.03)


def test_bfloat16_is_written_though_this_runtime_cannot_run_it(tmp_path):
    x, y = data()
    trainer = Trainer(network("bfloat16"), loss="mse")
    trainer.fit(x, y, batch_size=16)
    trainer.save(tmp_path / "tuned.onnx")
    assert types(tmp_path / "tuned.onnx") == {TensorProto.BFLOAT16}
    written = {
        t.name: numpy_helper.to_array(t)
        for t in onnx.load(tmp_path / "tuned.onnx").graph.initializer
    }
    for name, array in trainer.get_weights().items():
        np.testing.assert_allclose(written[name].astype(np.float32), array, rtol=1 / 128)


def test_small_steps_are_not_lost_and_a_checkpoint_keeps_them(tmp_path):
    """A step of 1e-6 is nothing to float16 near 0.5; two thousand of them are not."""
    x, y = data()
    trainer = Trainer(network("float16"), loss="mse", optimizer="sgd", lr=1e-6)
    before = trainer.get_weights()["w"].copy()
    trainer.fit(x, y, batch_size=16, callbacks=[Checkpoint(tmp_path / "run")])
    moved = np.abs(trainer.get_weights()["w"] - before).max()
    assert 0 < moved < 2**-12
    other = Trainer(network("float16"), loss="mse", optimizer="sgd", lr=1e-6)
    other.load_checkpoint(tmp_path / "run")
    np.testing.assert_array_equal(other.get_weights()["w"], trainer.get_weights()["w"])


def test_a_number_too_large_for_float16_is_refused(tmp_path):
    trainer = Trainer(network("float16"), loss="mse")
    trainer.set_weights({"b": np.full(8, 7e4, np.float32)})
    with pytest.raises(ExportError, match="weight 'b' holds 70000, which float16 cannot hold"):
        trainer.save(tmp_path / "tuned.onnx")
    assert not list(tmp_path.iterdir())


def test_the_command_line(tmp_path, capsys):
    from small_models import run

    x, y = data()
    onnx.save(network("float16"), tmp_path / "half.onnx")
    np.savez(tmp_path / "d.npz", x=x, y=y)
    where = [tmp_path / "half.onnx", "--data", tmp_path / "d.npz", "--run-dir", tmp_path / "run"]
    code, out, err = run(
        capsys,
        "train",
        *where,
        "-o",
        tmp_path / "t.onnx",
        "--epochs",
        1,
        "--keep-float32",
        "--json",
    )
    assert (code, err) == (0, "")
    notes = json.loads(out.splitlines()[0])["notes"]
    assert "the model is float16: it trains in float32 and is written in float32" in notes
    assert types(tmp_path / "t.onnx") == {TensorProto.FLOAT}


def test_a_constant_in_half_precision_is_trained_and_written(tmp_path):
    """Paddle's converter writes weights as Constants: they were written in float32, which no session loads."""
    model = network("float16")
    (kept,) = (t for t in model.graph.initializer if t.name == "w")
    model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=kept))
    model.graph.initializer.remove(kept)
    trainer = Trainer(model, loss="mse", optimizer="sgd", lr=0.1)
    x, y = data()
    trainer.step(x, y)
    trainer.save(tmp_path / "t.onnx")
    (written,) = (n for n in onnx.load(tmp_path / "t.onnx").graph.node if n.output[0] == "w")
    trained = trainer.get_weights()["w"]
    assert not np.array_equal(trained, numpy_helper.to_array(kept))
    got = numpy_helper.to_array(written.attribute[0].t)
    np.testing.assert_array_equal(got, trained.astype(np.float16))


def steep() -> onnx.ModelProto:
    """Weights in half precision, products in float32, and a difference that makes what rounding moves large."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.normal(size=(4, 2)).astype(np.float16), "w")]
    numbers = {"one": np.float32(1), "steep": np.float32(1000)}
    weights += [numpy_helper.from_array(a, n) for n, a in numbers.items()]
    nodes = [
        helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "wide"], ["m"]),
        helper.make_node("Sin", ["m"], ["s"]),
        helper.make_node("Mul", ["s", "steep"], ["large"]),
        helper.make_node("Sin", ["large"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("N", 2))], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_what_rounding_alone_moves_is_written_and_said(tmp_path, monkeypatch):
    trainer = Trainer(steep(), loss="mse", optimizer="sgd", lr=1e-4)
    trainer.step(*data())
    trainer.save(tmp_path / "t.onnx")
    (note,) = (n for n in trainer.notes if n.kind == "rounding")
    assert str(note).startswith("rounding moves output 'y' of a plain session by ")
    assert str(note).endswith("; --keep-float32 writes float32")
    written = precision.narrowed
    wrong = lambda *a: written(*a).view(Wrong)  # noqa: E731
    monkeypatch.setattr(precision, "narrowed", wrong)
    with pytest.raises(ExportError, match="output 'y' of a plain session differs"):
        trainer.save(tmp_path / "t.onnx")


class Wrong(np.ndarray):
    """Numbers of which the file gets others than it is said to hold."""

    def astype(self, *rest, **named):
        made = np.asarray(self).astype(*rest, **named)
        return made + made.dtype.type(0.01) if made.dtype == np.float16 else made
