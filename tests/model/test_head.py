"""A new last layer: for every way in which a classifier ends, and from the command line."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import onnxgrad
from onnxgrad.cli import main
from onnxgrad.errors import ModelError
from onnxgrad.model.head import Head
from onnxgrad.model.source import OriginalModel

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
RNG = np.random.default_rng(4)

ENDS = {
    "gemm, transposed": ("float[3, 4] w, float[3] b", "y = Gemm <transB = 1> (h, w, b)"),
    "gemm": ("float[4, 3] w, float[3] b", "y = Gemm (h, w, b)"),
    "matmul": ("float[4, 3] w", "y = MatMul (h, w)"),
    "matmul and add": ("float[4, 3] w, float[3] b", "p = MatMul (h, w)  y = Add (p, b)"),
    "add the other way round": ("float[4, 3] w, float[3] b", "p = MatMul (h, w)  y = Add (b, p)"),
    "softmax behind it": (
        "float[4, 3] w, float[3] b", "p = Gemm (h, w, b)  y = Softmax <axis = 1> (p)",
    ),
    "gemm without a bias": ("float[4, 3] w", "y = Gemm (h, w)"),
}  # fmt: skip


def with_weights(text: str, weights: str) -> onnx.ModelProto:
    """A model in ONNX's text form, with drawn weights: "float[5, 4] first, float[3] b"."""
    made = parser.parse_model(f"{HEAD} {text}")
    for dims, name in re.findall(r"float\[([\d, ]+)\] (\w+)", weights):
        shape = [int(d) for d in dims.split(",")]
        array = np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return made


def model(weights: str, end: str) -> onnx.ModelProto:
    text = (
        f"net (float[N, 5] x) => (float[N, 3] y) {{ a = MatMul (x, first)  h = Relu (a)  {end} }}"
    )
    return with_weights(text, f"float[5, 4] first, {weights}")


@pytest.mark.parametrize(("weights", "end"), ENDS.values(), ids=ENDS)
def test_the_last_layer_is_replaced(weights, end, tmp_path):
    proto = model(weights, end)
    before = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    trainer = onnxgrad.Trainer(proto, "cross_entropy", head=Head(6))
    assert any("6 classes in the place of 3" in note.text for note in trainer.notes)
    weights_now = trainer.get_weights()
    assert 6 in weights_now["w"].shape
    np.testing.assert_array_equal(weights_now["first"], before["first"])
    x = np.random.default_rng(3).standard_normal((32, 5)).astype(np.float32)
    y = np.arange(32) % 6
    first = trainer.step(x, y)["loss"]
    assert first == pytest.approx(np.log(6), abs=0.5)
    trainer.save(tmp_path / "new.onnx")
    written = onnxruntime.InferenceSession(str(tmp_path / "new.onnx"))
    assert written.get_outputs()[0].shape[1] == 6
    assert written.run(None, {"x": x})[0].shape == (32, 6)


def test_a_convolution_as_the_last_layer():
    proto = with_weights(
        "net (float[N, 2, 5, 5] x) => (float[N, 3, 5, 5] y) { y = Conv (x, w, b) }",
        "float[3, 2, 1, 1] w, float[3] b",
    )
    trainer = onnxgrad.Trainer(proto, "cross_entropy", changes=[Head(7)])
    assert trainer.get_weights()["w"].shape == (7, 2, 1, 1)
    x = RNG.standard_normal((4, 2, 5, 5)).astype(np.float32)
    assert trainer.predict(x).shape == (4, 7, 5, 5)


def test_the_same_seed_draws_the_same_head():
    heads = [
        onnxgrad.Trainer(model(*ENDS["gemm"]), "cross_entropy", changes=[Head(6, seed=seed)])
        for seed in (1, 1, 2)
    ]
    first, again, other = (t.get_weights()["w"] for t in heads)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_model_that_ends_otherwise_is_refused():
    proto = parser.parse_model(f"{HEAD} net (float[N, 5] x) => (float[N, 5] y) {{ y = Exp (x) }}")
    with pytest.raises(ModelError, match="this one ends in Exp"):
        onnxgrad.Trainer(proto, "mse", changes=[Head(2)])
    whole = parser.parse_model(f"{HEAD} net (int64[N, 5] x) => (int64[N, 5] y) {{ y = Neg (x) }}")
    with pytest.raises(ModelError, match="a new head: the model has no float output"):
        Head(2).rewrite(OriginalModel(whole))
    with pytest.raises(ModelError, match="has no output 'z'"):
        onnxgrad.Trainer(model(*ENDS["gemm"]), "mse", changes=[Head(2, output="z")])


def test_the_command_line_makes_a_head_for_the_data(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(model(*ENDS["gemm"]), "model.onnx")
    centres = RNG.standard_normal((5, 5)) * 3
    kinds = np.arange(200) % 5
    x = (centres[kinds] + RNG.standard_normal((200, 5))).astype(np.float32)
    words = ["ant", "bee", "cat", "dog", "eel"]
    rows = [",".join([*(f"{v:.4f}" for v in r), words[k]]) for r, k in zip(x, kinds, strict=True)]
    (tmp_path / "d.csv").write_text("a,b,c,d,e,kind\n" + "\n".join(rows) + "\n")
    command = ["train", "model.onnx", "--data", "d.csv", "-o", "tuned.onnx", "--epochs", "20"]
    assert main([*command, "--run-dir", "r1"]) == 2
    assert "--classes auto" in capsys.readouterr().err
    more = ["--classes", "auto", "--head-first", "3", "--lr", "0.02", "--run-dir", "r2"]
    assert main([*command, *more]) == 0
    assert "5 classes in the place of 3" in " ".join(capsys.readouterr().out.split())
    session = onnxruntime.InferenceSession("tuned.onnx")
    assert (session.run(None, {"x": x})[0].argmax(1) == kinds).mean() > 0.8
    assert main([*command, "--classes", "many", "--run-dir", "r3"]) == 2
    assert "expected auto or a number" in capsys.readouterr().err
