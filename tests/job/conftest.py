from __future__ import annotations

import pytest
from job.problem import write_problem


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with model.onnx and d.npz in it."""
    monkeypatch.chdir(tmp_path)
    write_problem()
    return tmp_path
