"""`onnxgrad lr-find`, as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path

from job.problem import run, write_problem

FIND = ("lr-find", "model.onnx", "--data", "d.npz", "--steps", 40)


def test_a_rate_and_a_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_problem()
    code, out, err = run(capsys, *FIND)
    assert (code, err) == (0, "")
    assert "lr " in out
    assert "picture lr.svg" in out
    assert Path("lr.svg").read_text().startswith("<svg")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.npz", "lr.svg", "model.onnx"]


def test_rates_as_numbers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_problem()
    more = ("--low", 1e-4, "--high", 1, "-o", "a.svg", "--json", "--optimizer", "sgd")
    code, out, _ = run(capsys, *FIND, *more)
    found = json.loads(out)
    assert code == 0
    assert found["picture"] == "a.svg"
    assert found["rates"][0] == 1e-4
    assert found["rates"][-1] <= 1
    assert len(found["rates"]) == len(found["losses"])
    assert 1e-4 < found["suggestion"] < 1


def test_the_picture_replaces_no_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_problem()
    before = Path("model.onnx").read_bytes()
    code, _, err = run(capsys, *FIND, "-o", "model.onnx")
    assert code == 2
    assert "expected one ending in .svg" in err
    assert Path("model.onnx").read_bytes() == before
