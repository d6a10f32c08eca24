"""Folders of sounds: a wake word with a batch fixed at 1, and a detector of voices with a state and a rate."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from stories.made import RATE, peer, read_csv, sound_net, sounds, weights, write_wav
from stories.walk import ask, onnxgrad, save, write_csv

SAMPLES = RATE // 5


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(folder: str, each: int, seed: int) -> None:
    for number, (name, samples) in enumerate(sounds(each, seed)):
        Path(folder, name).mkdir(parents=True, exist_ok=True)
        write_wav(f"{folder}/{name}/{number:03}.wav", samples)


def wake_word(path: str) -> None:
    """Samples -> filters -> Relu -> Conv -> Relu -> the largest of each -> scores, for one row: [1, 1, 1600]."""
    make = onnx.helper.make_node
    nodes = [
        make("Conv", ["samples", "k1", "b1"], ["c1"], kernel_shape=[32], strides=[8]),
        make("Relu", ["c1"], ["r1"]),
        make("Conv", ["r1", "k2", "b2"], ["c2"], kernel_shape=[9], strides=[2]),
        make("Relu", ["c2"], ["r2"]),
        make("ReduceMax", ["r2"], ["m"], axes=[2], keepdims=0),
        make("Reshape", ["m", "flat"], ["f"]),
        make("Gemm", ["f", "w", "b"], ["scores"]),
    ]
    tensors = {**sound_net(), "flat": np.array([1, 16])}
    save(path, nodes, {"samples": [1, 1, SAMPLES]}, {"scores": [1, 2]}, tensors)


def test_a_wake_word_from_files_with_a_fixed_batch_of_one(capsys):
    """The peer: the same network and numbers in PyTorch (peers.py). The floor is three points below it, and 0.9."""
    wake_word("model.onnx")
    write("sounds", 60, 1)
    write("test", 30, 2)
    onnxgrad(
        "train model.onnx --data sounds -o t.onnx --epochs 12 --lr 0.003 --val 0 --batch-size 16 --run-dir r"
    )
    said = " ".join(capsys.readouterr().out.split())
    assert "sounds: 1,600 samples at 8,000 Hz (0.2 s), one channel" in said
    assert "the model fixes its batch at 1: made free for training" in said
    assert onnxruntime.InferenceSession("t.onnx").get_inputs()[0].shape == [1, 1, SAMPLES]
    onnxgrad("eval t.onnx --data test --json")
    assert json.loads(capsys.readouterr().out)["accuracy"] >= max(0.9, peer("wake word") - 0.03)
    # a manifest names the files from where it lies, and needs no folders
    files = sorted(Path("test").rglob("*.wav"))
    write_csv("list.csv", [{"path": str(f), "label": f.parent.name} for f in files])
    onnxgrad("predict t.onnx --data list.csv --target label -o answers.csv")
    rows = read_csv("answers.csv")
    assert [r["file"] for r in rows] == [str(f) for f in files]
    right = np.mean([r["class"] == f.parent.name for r, f in zip(rows, files, strict=True)])
    assert right >= max(0.9, peer("wake word") - 0.03)


def voices(path: str) -> None:
    """As Silero's: samples [N, 1600], a state [2, N, 8] and the rate, a number; a probability and the next state.

    At another rate than 8000 every second sample would be taken; the state is added to the features.
    """
    make = onnx.helper.make_node
    rng = np.random.default_rng(0)
    tensors = {
        **weights(1, k1=(16, 1, 32), b1=(16,), k2=(8, 16, 9), b2=(8,), w=(8, 1), b=(1,), u=(8, 8)),
        "known": np.array(RATE, np.int64), "one": np.array([1]), "zero": np.array([0]),
        "scale": rng.normal(0, 0.1, 8).astype(np.float32),
    }  # fmt: skip
    then = onnx.helper.make_graph([make("Identity", ["wide"], ["a"])], "as it is", [], [
        onnx.helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, None)])  # fmt: skip
    other = onnx.helper.make_graph(
        [make("Slice", ["wide", "zero", "end", "axis", "step"], ["s"])], "half", [],
        [onnx.helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.array([v]), n) for n, v in (("end", 1 << 40), ("axis", 2), ("step", 2))],
    )  # fmt: skip
    nodes = [
        make("Unsqueeze", ["samples", "one"], ["wide"]),
        make("Equal", ["sr", "known"], ["is_known"]),
        make("If", ["is_known"], ["taken"], then_branch=then, else_branch=other),
        make("Conv", ["taken", "k1", "b1"], ["c1"], kernel_shape=[32], strides=[8]),
        make("Relu", ["c1"], ["r1"]),
        make("Conv", ["r1", "k2", "b2"], ["c2"], kernel_shape=[9], strides=[2]),
        make("Relu", ["c2"], ["r2"]),
        make("ReduceMax", ["r2"], ["m"], axes=[2], keepdims=0),
        make("Gather", ["state", "zero_index"], ["h"], axis=0),
        make("MatMul", ["h", "u"], ["hu"]),
        make("Add", ["m", "hu"], ["features"]),
        make("Gemm", ["features", "w", "b"], ["logit"]),
        make("Sigmoid", ["logit"], ["voice"]),
        make("Mul", ["state", "scale"], ["next_state"]),
    ]
    tensors["zero_index"] = np.array(0)
    inputs = {"samples": ["N", SAMPLES], "state": [2, "N", 8], "sr": []}
    save(
        path, nodes, inputs, {"voice": ["N", 1], "next_state": [2, "N", 8]}, tensors, whole=("sr",)
    )


def test_a_model_like_silero_with_a_state_and_a_rate(capsys):
    """As the wake word, with one output: the peer and the floor are the same."""
    voices("model.onnx")
    write("sounds", 60, 1)
    write("test", 30, 2)
    onnxgrad(
        "train model.onnx --data sounds --constant state=0 -o t.onnx --epochs 12 --lr 0.003 --val 0 "
        "--batch-size 16 --run-dir r"
    )
    said = " ".join(capsys.readouterr().out.split())
    assert "input 'sr': 8000, the rate of the sounds" in said
    onnxgrad("eval t.onnx --data test --json")  # the file remembers that the state is 0
    assert json.loads(capsys.readouterr().out)["accuracy"] >= max(0.9, peer("wake word") - 0.03)
    onnxgrad("predict t.onnx --data test -o answers.csv")
    rows = read_csv("answers.csv")
    right = np.mean([r["file"].startswith(r["class"]) for r in rows])
    assert right >= max(0.9, peer("wake word") - 0.03)
    first = rows[0]
    samples = np.stack([s for _, s in sounds(30, 2)][:1]).astype(np.float32)
    state = np.zeros((2, 1, 8), np.float32)
    alone = ask("t.onnx", samples=samples, state=state, sr=np.array(RATE, np.int64))[0]
    assert float(first["voice"]) == pytest.approx(alone.item(), abs=2e-3)  # 16 bits in the file
