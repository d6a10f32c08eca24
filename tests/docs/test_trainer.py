"""docs/trainer.md and the docstrings of onnxgrad.train run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from places import DOCS
from train import problems

import onnxgrad.train

PAGE = DOCS / "trainer.md"
MODULES = [m.name for m in pkgutil.iter_modules(onnxgrad.train.__path__, "onnxgrad.train.")]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


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
