"""Scores that do not lie: folds, seeds, and a series that is judged by its future."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from stories.walk import DATA, ask, mlp, onnxgrad, read_csv, write_csv


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_five_folds_with_mean_and_spread(capsys):
    """0.983 ± 0.015 by scikit-learn: cross_val_score, 5 stratified folds, StandardScaler, LogisticRegression."""
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
    assert found["mean"] >= 0.95
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
    assert "the written model is that of seed 0" in said


def sunspots() -> list[dict]:
    """Windows of 24 values of a cycle with noise, and the next value."""
    rng = np.random.default_rng(3)
    t = np.arange(600)
    series = 60 + 50 * np.sin(2 * np.pi * t / 66) + rng.normal(0, 6, 600)
    return [
        {**{f"m{i}": f"{series[s + i]:.3f}" for i in range(24)}, "next": f"{series[s + 24]:.3f}"}
        for s in range(576)
    ]


def test_a_series_is_validated_on_its_future(capsys):
    """Least squares on the same windows has 6.1; the noise alone is 6, and the last value as the answer has 8.7."""
    rows = sunspots()
    write_csv("past.csv", rows[:480])
    write_csv("future.csv", rows[480:])
    mlp("model.onnx", [24, 16, 1])
    onnxgrad(
        "train model.onnx --data past.csv --split time --standardize -o tuned.onnx --epochs 80 --lr 0.02 --loss huber"
    )
    assert "96 of 480 rows, the last in the file" in capsys.readouterr().out
    x = np.array([[float(r[f"m{i}"]) for i in range(24)] for r in rows[480:]], np.float32)
    y = np.array([float(r["next"]) for r in rows[480:]])
    error = np.sqrt(((ask("tuned.onnx", x=x)[0][:, 0] - y) ** 2).mean())
    naive = np.sqrt(((x[:, -1] - y) ** 2).mean())
    assert error < 8.5 < naive
