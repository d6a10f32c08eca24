"""Tables as people have them: text labels, numbers of every size, gaps, words, dates."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from stories.made import DATA, numbers, part, peer, read_csv
from stories.walk import ask, mlp, onnxgrad, write_csv


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def wine() -> tuple[list, list]:
    train, test = part(read_csv(DATA / "wine.csv"), 0.25)
    write_csv("wine.csv", train)
    write_csv("test.csv", test)
    return train, test


def test_wine_with_text_labels_unscaled(capsys):
    """The peer: StandardScaler and LogisticRegression (peers.py). The floor is 0.97."""
    _, test = wine()
    mlp("model.onnx", [13, 16, 3])
    onnxgrad("train model.onnx --data wine.csv -o raw.onnx --epochs 40 --lr 0.01")
    assert "columns differ by orders of magnitude ('proline'" in capsys.readouterr().out
    onnxgrad("train model.onnx --data wine.csv -o wine.onnx --standardize --epochs 40 --lr 0.01")
    said = capsys.readouterr().out
    assert "13 columns standardised by mean and deviation of the training rows" in said
    assert "the same share of each class" in said
    # raw rows in a plain session: the standardisation is in the file
    x = numbers(test)
    labels = sorted({r["cultivar"] for r in test})
    answer = [labels[i] for i in ask("wine.onnx", x=x)[0].argmax(1)]
    right = np.mean([a == r["cultivar"] for a, r in zip(answer, test, strict=True)])
    assert right >= 0.97
    assert right >= peer("wine") - 0.02
    onnxgrad("predict wine.onnx --data test.csv --target cultivar -o answers.csv")
    assert [r["class"] for r in read_csv("answers.csv")] == answer


def test_diabetes_as_a_regression(capsys):
    """The peer: StandardScaler and RidgeCV (peers.py). The floor is 0.40, and 0.08 below it."""
    train, test = part(read_csv(DATA / "diabetes.csv"), 0.25)
    write_csv("d.csv", train)
    write_csv("test.csv", test)
    mlp("model.onnx", [10, 16, 1])
    onnxgrad(
        "train model.onnx --data d.csv -o tuned.onnx --standardize --epochs 60 --lr 0.01 --loss huber --patience 10"
    )
    x = numbers(test)
    y = np.array([float(r["progression"]) for r in test])
    error = ((ask("tuned.onnx", x=x)[0][:, 0] - y) ** 2).mean()
    assert 1 - error / y.var() >= max(0.40, peer("diabetes") - 0.08)


def mixed(rows: int) -> list[dict]:
    """A price that follows from size, colour and age, with gaps in the size."""
    rng = np.random.default_rng(5)
    made = []
    for _ in range(rows):
        size, colour = rng.normal(1000, 200), rng.choice(["red", "green", "blue"])
        day = int(rng.integers(0, 1000))
        price = size / 200 + {"red": 3, "green": 0, "blue": -3}[colour] + day / 500
        made.append({
            "size": "" if rng.random() < 0.1 else f"{size:.1f}",
            "colour": colour,
            "built": str(np.datetime64("2020-01-01") + day),
            "price": f"{price:.4f}",
        })  # fmt: skip
    return made


def test_words_gaps_and_dates(capsys):
    rows = mixed(400)
    write_csv("d.csv", rows[:300])
    write_csv("test.csv", rows[300:])
    mlp("model.onnx", [5, 16, 1])
    onnxgrad(
        "train model.onnx --data d.csv --target price --standardize --missing median -o tuned.onnx "
        "--epochs 60 --lr 0.02"
    )
    said = " ".join(capsys.readouterr().out.split())
    assert "column 'colour' is a category of 3 words ('blue', 'green', 'red')" in said
    assert "missing numbers become the median of the training rows" in said
    assert "column 'built' holds dates" in said
    onnxgrad("predict tuned.onnx --data test.csv --target price -o answers.csv")
    answers = np.array([float(r["y"]) for r in read_csv("answers.csv")])
    truth = np.array([float(r["price"]) for r in rows[300:]])
    known = np.array([r["size"] != "" for r in rows[300:]])
    assert np.abs(answers - truth)[known].mean() < 0.35
    assert np.isfinite(answers).all()
    # the file has an input for each column, and takes words
    days = (np.datetime64("2021-01-01") - np.datetime64("1970-01-01")).astype(int)
    one = {
        "size": np.array([[np.nan]], np.float32),
        "colour": np.array([["red"]], object),
        "built": np.array([[days]], np.float32),
    }
    red = ask("tuned.onnx", **one)[0]
    blue = ask("tuned.onnx", **{**one, "colour": np.array([["blue"]], object)})[0]
    unknown = ask("tuned.onnx", **{**one, "colour": np.array([["pink"]], object)})[0]
    assert red - blue > 4
    assert np.isfinite(unknown).all()
    # tuned once more, it trains what was trained before, and not what prepares its inputs
    onnxgrad("train tuned.onnx --data d.csv --target price -o again.onnx --epochs 1")
    first, second = (
        {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(f).graph.initializer}
        for f in ("tuned.onnx", "again.onnx")
    )
    same = {n for n in first if np.array_equal(first[n], second[n])}
    assert same == {n for n in first if n.startswith("x/")} != set()


def test_a_gap_is_refused_with_a_way_out(capsys):
    from onnxgrad.cli import main

    write_csv("d.csv", [{"a": 1.5, "b": "", "y": 0}, {"a": 2, "b": 1, "y": 1}])
    mlp("model.onnx", [2, 2])
    assert main(["train", "model.onnx", "--data", "d.csv", "-o", "t.onnx"]) == 2
    assert "line 2: column 'b' is empty; --missing mean or median fills" in capsys.readouterr().err
