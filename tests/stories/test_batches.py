"""Files that were exported for one row at a time."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from stories.walk import ask, onnxgrad, save


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def words(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sounds of 16 frames with 8 bands: a wake word is a rising tone somewhere in it."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 0.5, (count, 16, 8)).astype(np.float32)
    label = np.arange(count) % 2
    for row in np.flatnonzero(label):
        at = rng.integers(0, 8)
        for band in range(8):
            x[row, at + band, band] += 2
    return x, label


def wake_word(path: str, *, state: bool) -> None:
    """Frames -> Conv -> Relu -> mean -> scores, for one row: [1, 16, 8]. With `state`, added to a fixed one."""
    rng = np.random.default_rng(0)
    shapes = {"k": (12, 8, 5), "w": (12, 2)}
    tensors = [
        onnx.numpy_helper.from_array(rng.normal(0, 0.3, s).astype(np.float32), n)
        for n, s in shapes.items()
    ]
    tensors += [
        onnx.numpy_helper.from_array(np.array([1, 12, -1]), "bands"),
        onnx.numpy_helper.from_array(np.array([1, 12]), "flat"),
        onnx.numpy_helper.from_array(np.array([1, 1], np.int64), "one"),
    ]
    make = onnx.helper.make_node
    nodes = [
        make("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        make("Conv", ["t", "k"], ["c"], kernel_shape=[5], pads=[2, 2]),
        make("Relu", ["c"], ["r"]),
        make("Reshape", ["r", "bands"], ["b"]),
        make("ReduceMax", ["b"], ["m"], axes=[2], keepdims=0),
        make("Reshape", ["m", "flat"], ["f"]),
        make("MatMul", ["f", "w"], ["s"]),
        make("Expand", ["s", "one"], ["e"]) if not state else make("ReduceSum", ["s"], ["total"]),
        make("Identity", ["e"], ["y"]) if not state else make("Sub", ["s", "total"], ["y"]),
    ]
    save(path, nodes, {"x": [1, 16, 8]}, {"y": [1, 2]}, tensors)


@pytest.mark.parametrize("state", [False, True], ids=["free", "not free"])
def test_a_wake_word_with_a_fixed_batch_of_one(state, capsys):
    """0.98 and more by an SVM on the flat rows; the floor is 0.95."""
    x, label = words(240, 1)
    np.savez("d.npz", x=x, label=label)
    wake_word("model.onnx", state=state)
    onnxgrad(
        "train model.onnx --data d.npz -o t.onnx --batch-size 16 --epochs 12 --lr 0.01 --run-dir r"
    )
    said = " ".join(capsys.readouterr().out.split())
    if state:  # a sum over all rows: with more rows every row would get other numbers
        assert "batch size: 1, which the model fixes, 16 of them for each step" in said
    else:
        assert "the model fixes its batch at 1: made free for training" in said
    session = onnxruntime.InferenceSession("t.onnx")
    assert session.get_inputs()[0].shape == [1, 16, 8]  # as it came
    test, truth = words(60, 2)
    answers = [ask("t.onnx", x=row[None])[0].argmax() for row in test]
    assert np.mean(answers == truth) >= 0.95
    onnxgrad("predict t.onnx --data d.npz --target label -o answers.csv")
