"""Scores that do not lie: folds, seeds, and a series that is judged by its future."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from stories.made import DATA, numbers, peer, read_csv, sunspots
from stories.walk import ask, mlp, onnxgrad, write_csv


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_five_folds_with_mean_and_spread(capsys):
    """The peer: cross_val_score of StandardScaler and LogisticRegression (peers.py). The floor is 0.95."""
    mlp("model.onnx", [13, 16, 3])
    write_csv("wine.csv", read_csv(DATA / "wine.csv"))
    line = "train model.onnx --data wine.csv -o wine.onnx --standardize --epochs 15 --lr 0.03 --folds 5"
    onnxgrad(f"{line} --json --run-dir r")
    events = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    trials = [e["scores"]["accuracy"] for e in events if e["event"] == "trial"]
    found = events[-1]["trials"]["accuracy"]
    assert len(trials) == 5
    assert found["mean"] == pytest.approx(np.mean(trials))
    assert found["deviation"] == pytest.approx(np.std(trials, ddof=1))
    assert found["mean"] >= max(0.95, peer("folds") - 0.03)
    assert found["deviation"] <= 0.06
    assert "Folds and seeds" in Path("r/report.html").read_text()
    # another run of the same settings gives the same bits; folds that are done are not done again
    first = Path("wine.onnx").read_bytes()
    Path("wine.onnx").unlink()
    onnxgrad("train --resume r --quiet")
    assert Path("wine.onnx").read_bytes() == first


def test_repeated_seeds(capsys):
    mlp("model.onnx", [13, 16, 3])
    write_csv("wine.csv", read_csv(DATA / "wine.csv"))
    onnxgrad(
        "train model.onnx --data wine.csv -o wine.onnx --standardize --epochs 5 --lr 0.02 --repeat 3"
    )
    said = capsys.readouterr().out
    assert "over 3 trainings: mean ± deviation" in said
    assert "runs/model-1/report.html" in said  # the one with the spread
    assert "the written model is that of seed 0" in said


def test_a_series_is_validated_on_its_future(capsys):
    """The peer: least squares (peers.py). The noise alone is 6, the last value as the answer 8.7, the floor 8.5."""
    rows = sunspots()
    write_csv("past.csv", rows[:480])
    write_csv("future.csv", rows[480:])
    mlp("model.onnx", [24, 16, 1])
    onnxgrad(
        "train model.onnx --data past.csv --split time --standardize -o tuned.onnx --epochs 80 --lr 0.02 --loss huber"
    )
    assert "96 of 480 rows, the last in the file" in capsys.readouterr().out
    x = numbers(rows[480:])
    y = np.array([float(r["next"]) for r in rows[480:]])
    error = np.sqrt(((ask("tuned.onnx", x=x)[0][:, 0] - y) ** 2).mean())
    naive = np.sqrt(((x[:, -1] - y) ** 2).mean())
    assert error < 8.5 < naive
    assert error <= peer("sunspots") + 2
