"""What people want to know: rare things, several things at once, boxes and scores."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from stories.made import boxes, fraud, peer, tagged_news
from stories.walk import ask, mlp, onnxgrad, save, write_csv

from onnxgrad.cli import main


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_rare_frauds_by_auc(capsys):
    """The peer: an MLPClassifier of the same width (peers.py). The floor is 0.93, and 0.03 below it."""
    write_csv("d.csv", fraud(1))
    write_csv("test.csv", fraud(2))
    mlp("model.onnx", [6, 24, 2])
    onnxgrad(
        "train model.onnx --data d.csv -o t.onnx --class-weights balanced --metrics auc,average_precision,recall_macro "
        "--epochs 20 --lr 0.01 --run-dir r"
    )
    said = " ".join(capsys.readouterr().out.split())
    assert "class weights, balanced: no 0.515, yes 16.7" in said
    onnxgrad("eval t.onnx --data test.csv --metrics auc,average_precision --json")
    found = json.loads(capsys.readouterr().out)
    assert found["auc"] >= max(0.93, peer("fraud") - 0.03)
    assert found["average_precision"] >= 0.4
    report = Path("r/report.html").read_text()
    assert "Confusion matrix" in report
    assert report.count(">yes<") >= 2


def test_one_output_of_yes_or_no_has_a_confusion_matrix_too():
    rows = fraud(1, 300)
    write_csv("d.csv", [{**r, "fraud": int(r["fraud"] == "yes")} for r in rows])
    mlp("model.onnx", [6, 8, 1], end="Sigmoid")
    onnxgrad("train model.onnx --data d.csv -o t.onnx --epochs 1 --class-weights 30 --run-dir r")
    report = Path("r/report.html").read_text()
    cells = re.findall(r"<td style='background[^>]*>(\d*)</td>", report)
    assert len(cells) == 4
    assert sum(int(c or 0) for c in cells) == 60  # the rows that were set aside


def test_several_yes_or_no_at_once(capsys):
    """The peer: an MLPClassifier of the same width (peers.py). The floor is 0.88, and 0.04 below it."""
    rows = tagged_news()
    write_csv("d.csv", rows[:500])
    write_csv("test.csv", rows[500:])
    mlp("model.onnx", [5, 16, 3])
    line = "--target news,sport,fun --metrics f1_macro,auc"
    onnxgrad(f"train model.onnx --data d.csv {line} -o t.onnx --epochs 25 --lr 0.02")
    assert "loss: bce, because the targets are all 0 or 1" in capsys.readouterr().out
    onnxgrad(f"eval t.onnx --data test.csv {line} --json")
    assert json.loads(capsys.readouterr().out)["f1_macro"] >= max(0.88, peer("multi-label") - 0.04)


def detector(path: str) -> None:
    """A shared layer, then a box of four numbers and a score."""
    rng = np.random.default_rng(0)
    shapes = {"w": (8, 24), "wb": (24, 4), "ws": (24, 1)}
    tensors = [
        onnx.numpy_helper.from_array(rng.normal(0, 0.3, s).astype(np.float32), n)
        for n, s in shapes.items()
    ]
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["h"]),
        onnx.helper.make_node("Tanh", ["h"], ["a"]),
        onnx.helper.make_node("MatMul", ["a", "wb"], ["box"]),
        onnx.helper.make_node("MatMul", ["a", "ws"], ["score"]),
    ]
    save(path, nodes, {"x": ["N", 8]}, {"box": ["N", 4], "score": ["N", 1]}, tensors)


def test_a_detector_with_two_outputs(capsys):
    """The peers: least squares and logistic regression (peers.py). The floors are an error of 0.2, and AUC 0.97."""
    detector("model.onnx")
    np.savez("d.npz", **{n: a[:500] for n, a in boxes().items()})
    np.savez("test.npz", **{n: a[500:] for n, a in boxes().items()})
    losses = "--loss box=l1,score=bce"
    onnxgrad(f"train model.onnx --data d.npz {losses} -o t.onnx --epochs 40 --lr 0.01")
    said = capsys.readouterr().out
    assert "targets by the names of the outputs" in said
    assert "box_mae" in said
    metrics = "--metrics box=mae,score=auc,score=accuracy"
    onnxgrad(f"eval t.onnx --data test.npz {losses} {metrics} --json")
    found = json.loads(capsys.readouterr().out)
    assert found["box_mae"] <= 0.2
    assert found["box_mae"] <= peer("boxes") + 0.1
    assert found["score_auc"] >= max(0.97, peer("scores") - 0.02)
    # one of them alone, by its name; and by columns
    onnxgrad(
        "train model.onnx --data d.npz --model-output score --target score --ignore box -o s.onnx --epochs 1"
    )
    assert "loss: bce" in capsys.readouterr().out
    onnxgrad(
        "train model.onnx --data d.npz --loss box=l1 --target box=box --ignore score -o b.onnx --epochs 1"
    )


def test_rows_that_count_more():
    """Half of the labels are wrong and weigh nothing: accuracy on the right ones is as without them."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(400, 4))
    right = (x[:, 0] > 0).astype(int)
    lie = np.arange(400) % 2 == 1
    label, weight = np.where(lie, 1 - right, right), np.where(lie, 0.0, 1.0)
    np.savez("d.npz", x=x.astype(np.float32), label=label, weight=weight)
    mlp("model.onnx", [4, 8, 2])
    onnxgrad(
        "train model.onnx --data d.npz --target label --sample-weights weight -o t.onnx --epochs 20 --lr 0.02 --val 0"
    )
    answer = ask("t.onnx", x=x.astype(np.float32))[0].argmax(1)
    assert (answer == right).mean() >= 0.95


REFUSED = [
    ("--loss mse --label-smoothing 0.1", "--label-smoothing is for losses of classes, not for mse"),
    ("--class-weights heavy", "expected balanced, 2 numbers, or name=number"),
    ("--ignore-index some", "--ignore-index is 'some', expected a whole number"),
    ("--loss z=l1", "the model has no output 'z'; its outputs are 'y'"),
    ("--model-output z", "the model has no output 'z'"),
    ("--loss cosine", "--loss is 'cosine', expected one of"),
    ("--sample-weights w", "has no column 'w'"),
]


@pytest.mark.parametrize(("flags", "message"), REFUSED)
def test_settings_that_do_not_go_together_are_refused(flags, message, capsys):
    write_csv("d.csv", fraud(1, 60))
    mlp("model.onnx", [6, 2])
    assert main(["train", "model.onnx", "--data", "d.csv", "-o", "t.onnx", *flags.split()]) == 2
    assert message in capsys.readouterr().err


def test_smoothing_and_ignored_labels_train():
    x = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    label = np.where(np.arange(60) % 5 == 0, -100, (x[:, 0] > 0).astype(int))
    np.savez("d.npz", x=x, label=label)
    mlp("model.onnx", [6, 8, 2])
    onnxgrad(
        "train model.onnx --data d.npz -o t.onnx --ignore-index -100 --label-smoothing 0.1 --epochs 2 --quiet"
    )
