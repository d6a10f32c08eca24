"""Quantisation-aware training: the written file is the integer file, and computes what was trained."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from train import problems

import onnxgrad
from onnxgrad.cli import main
from onnxgrad.demo import digits, models
from onnxgrad.model.quantize import Quantize

SMALL = {onnx.TensorProto.INT8, onnx.TensorProto.UINT8, onnx.TensorProto.INT4}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A float CNN with batch normalisation, some steps trained; its problem and its file."""
    problem, path = problems.cnn(), tmp_path_factory.mktemp("float") / "float.onnx"
    trainer = onnxgrad.Trainer(problem.model(), "cross_entropy", lr=problem.lr)
    for x, y in problem.batches[:30]:
        trainer.step(x, y)
    trainer.save(path)
    return problem, path


def quantising(trained, **settings):
    problem, path = trained
    how = Quantize(data=problem.batches[0][0], **settings)
    return onnxgrad.Trainer(path, "cross_entropy", lr=1e-3, quantize=how, metrics="accuracy")


def outputs(path, x) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options).run(None, {"x": x})[0]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        dict(activations="uint8"),
        dict(per_channel=False),
        dict(scales="fixed"),
        dict(scales="observed"),
        dict(scales="observed", activations="uint8", weights="uint8", per_channel=False),
        dict(method="percentile"),
        dict(method="entropy", activations="uint8"),
        dict(weights="int4"),
    ],
    ids=str,
)
def test_the_file_computes_what_was_trained(trained, settings, tmp_path):
    problem, _ = trained
    trainer = quantising(trained, **settings)
    first = trainer.step(*problem.batches[0])["loss"]
    for x, y in problem.batches[1:30]:
        last = trainer.step(x, y)["loss"]
    assert last < first
    trainer.save(tmp_path / "integers.onnx")
    written = onnx.load(tmp_path / "integers.onnx")
    kinds = [t.data_type for t in written.graph.initializer if len(t.dims) > 1]
    assert set(kinds) <= SMALL
    assert {n.op_type for n in written.graph.node} >= {"QuantizeLinear", "DequantizeLinear", "Conv"}
    assert not any(n.domain == "com.microsoft" for n in written.graph.node)
    x = problem.batches[35][0]
    scales = {t.name: onnx.numpy_helper.to_array(t) for t in written.graph.initializer}
    step = float(scales["logits_scale"])
    np.testing.assert_allclose(
        outputs(tmp_path / "integers.onnx", x), trainer.predict(x), atol=1.01 * step
    )


def test_scales_are_learned_where_asked_for(trained, tmp_path):
    problem, _ = trained
    trainer = quantising(trained)
    before = {n: w.copy() for n, w in trainer.get_weights().items() if n.endswith(".log_scale")}
    for x, y in problem.batches[:5]:
        trainer.step(x, y)
    after = trainer.get_weights()
    assert before
    assert any(not np.array_equal(after[n], w) for n, w in before.items())
    frozen = quantising(trained, scales="fixed")
    assert not [n for n in frozen.get_weights() if n.endswith(".log_scale")]


def test_weight_decay_leaves_scales_alone(trained):
    """Decay would move a logarithm of -4 by 0.2 in this step; AdamW itself moves it by lr at most."""
    problem, path = trained
    optimizer = onnxgrad.optimizers.AdamW(lr=1e-2, weight_decay=5.0)
    how = Quantize(data=problem.batches[0][0])
    trainer = onnxgrad.Trainer(path, "cross_entropy", optimizer, quantize=how)
    before = {n: w.copy() for n, w in trainer.get_weights().items()}
    trainer.step(*problem.batches[0])
    after = trainer.get_weights()
    scales = [n for n in before if n.endswith(".log_scale")]
    assert scales
    assert max(np.abs(after[n] - before[n]).max() for n in scales) < 1.01e-2
    assert np.abs(after["w"] - before["w"]).max() > 1.01e-2


def test_integer_kernels_run(trained, tmp_path):
    """onnxruntime fuses what was written into its integer operators."""
    trainer = quantising(trained)
    trainer.step(*trained[0].batches[0])
    trainer.save(tmp_path / "integers.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(str(tmp_path / "integers.onnx"), options)
    kinds = [n.op_type for n in onnx.load(tmp_path / "optimised.onnx").graph.node]
    assert kinds.count("QLinearConv") == 2
    assert "Conv" not in kinds


def test_the_same_file_for_the_same_seed(trained, tmp_path):
    problem, _ = trained
    for name in ("a", "b"):
        trainer = quantising(trained)
        for x, y in problem.batches[:4]:
            trainer.step(x, y)
        trainer.save(tmp_path / f"{name}.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_a_file_that_is_quantised_already_trains_on(trained, tmp_path):
    problem, _ = trained
    trainer = quantising(trained)
    trainer.step(*problem.batches[0])
    trainer.save(tmp_path / "integers.onnx")
    again = onnxgrad.Trainer(tmp_path / "integers.onnx", "cross_entropy", quantize=Quantize())
    losses = [again.step(x, y)["loss"] for x, y in problem.batches[:30]]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    again.save(tmp_path / "again.onnx")
    assert not np.array_equal(
        *(outputs(tmp_path / f"{n}.onnx", problem.batches[0][0]) for n in ("integers", "again"))
    )


def test_what_is_excluded_stays_float(trained, tmp_path):
    problem, path = trained
    model = onnx.load(path)
    for node in model.graph.node:
        node.name = f"layer/{node.output[0]}"
    onnx.save(model, tmp_path / "named.onnx")
    trainer = quantising((problem, tmp_path / "named.onnx"), exclude=["layer/logits"])
    trainer.save(tmp_path / "integers.onnx")
    kinds = {t.name: t.data_type for t in onnx.load(tmp_path / "integers.onnx").graph.initializer}
    assert kinds["w"] == onnx.TensorProto.FLOAT
    assert onnx.TensorProto.INT8 in kinds.values()
    with pytest.raises(onnxgrad.OnnxGradError, match="is not a node"):
        quantising(trained, exclude=["nothing*"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("int7", "'int7' is not a precision, expected one of int8"),
        ("int8,activations=int7", "activations is 'int7', expected one of"),
        ("int8,scales=guessed", "scales is 'guessed', expected one of learned, observed, fixed"),
        ("int4,block=1", "block is 1, expected 0 or at least 2"),
        ("int4,block=-2", "block is -2, expected 0 or at least 2"),
        ("int8,rows=0", "rows is 0, expected at least 1"),
        ("int8,data=rows.npz", "expected NAME=VALUE with one of weights"),
        ("int8,nodes=a", "expected NAME=VALUE with one of weights"),
        ("int8,percentile=0", "percentile is 0.0, expected 0 to 100"),
        ("int8,percentile=120", "percentile is 120.0, expected 0 to 100"),
        ("w5a8", "'w5a8' is not a precision"),
        ("int8,speed=3", "expected NAME=VALUE with one of weights"),
        ("int8,rows=none", "rows is 'none', expected a number"),
        ("int8,per_channel=perhaps", "per_channel is 'perhaps', expected yes or no"),
    ],
)
def test_settings_are_checked(text, said):
    with pytest.raises(ValueError, match=said):
        Quantize.parse(text)


def test_data_to_calibrate_on_are_asked_for(trained):
    with pytest.raises(ValueError, match="needs rows to calibrate on"):
        onnxgrad.Trainer(trained[1], "cross_entropy", quantize=Quantize())


def test_the_command_compares_three_models(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models.write("cnn", tmp_path / "model.onnx")
    split = digits.write(tmp_path)
    more = ["--data", str(split.train), "--val", str(split.validation), "--run-dir"]
    assert main(["train", "model.onnx", *more, "float", "--epochs", "3", "-o", "float.onnx"]) == 0
    capsys.readouterr()
    command = ["train", "float.onnx", *more, "int", "--epochs", "1", "--lr", "1e-4"]
    assert main([*command, "--quantize", "int8", "-o", "int8.onnx"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("float", "post-training", "trained", "KiB", "ms"))
    assert "Float and integers" in (tmp_path / "int" / "report.html").read_text()
    assert (tmp_path / "int8.onnx").stat().st_size < (tmp_path / "float.onnx").stat().st_size


def test_eval_and_training_without_a_flag(trained, tmp_path):
    """A quantised file trains as it is: integers stay integers, and scales stay."""
    problem, _ = trained
    trainer = quantising(trained)
    trainer.save(tmp_path / "integers.onnx")
    x, y = problem.batches[0]
    plain = onnxgrad.Trainer(tmp_path / "integers.onnx", "cross_entropy")
    assert any(note.kind == "quantised" for note in plain.notes)
    assert plain.evaluate(x, y)["loss"] == pytest.approx(trainer.evaluate(x, y)["loss"], abs=1e-3)
    plain.step(x, y)
    plain.save(tmp_path / "again.onnx")
    before, after = (
        {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / f).graph.initializer}
        for f in ("integers.onnx", "again.onnx")
    )
    for name, array in before.items():
        same = np.array_equal(array, after[name])
        assert same or name.endswith("_quantized"), name
