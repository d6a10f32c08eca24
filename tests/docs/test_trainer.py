"""docs/trainer.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
from places import DOCS
from train import problems

PAGE = DOCS / "trainer.md"


def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problem = problems.mlp()
    onnx.save(problem.model(), "model.onnx")
    nodes = [problems.node("MatMul", ["x", "w"], ["y"])]
    io = [("x", problems.FLOAT, ["N", 3])], [("y", problems.FLOAT, ["N", 2])]
    onnx.save(
        problems.make_model(nodes, *io, {"w": np.ones((3, 2), np.float32)}), "regression.onnx"
    )
    x, y = (np.concatenate(p) for p in zip(*problem.batches[:8], strict=True))
    names: dict = {"x": x, "y": y}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S):
        exec(block, names)
    assert Path("tuned.onnx").exists()
