"""`onnxgrad ops`: our kernels, and the state of every operator's gradient."""

from __future__ import annotations

import pytest

from onnxgrad.cli import main


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LeakyReluGrad", "dX = Y > 0 ? dY : alpha·dY"),
        ("relu_grad", "ReluGrad"),
        ("Conv", "with a kernel of ours"),
        ("Mul", "gradient: rule"),
        ("ArgMax", "gradient: zero"),
        ("DeformConv", "gradient: refused"),
        ("HardSwish", "gradient: "),
    ],
)
def test_one_operator(name, expected, capsys):
    assert main(["ops", name]) == 0
    assert expected in capsys.readouterr().out


def test_the_list(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["ops"]) == 0
    out = capsys.readouterr().out
    assert "GeluGrad" in out
    for kind in ("rule and kernel", "inlined", "zero", "refused"):
        assert f"\n{kind}" in out


def test_a_misspelt_name(capsys):
    assert main(["ops", "ReluGrat"]) == 2
    assert "did you mean ReluGrad?" in capsys.readouterr().err
