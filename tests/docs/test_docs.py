"""README, docs and docstrings: the examples run, the links lead somewhere."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import shlex

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from places import ROOT

from onnxgrad.cli import main

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCE = ROOT / "src"
WITH_EXAMPLES = sorted(p for p in SOURCE.rglob("*.py") if ">>> " in p.read_text())
# Names of metadata in a file, which look like names in Python.
METADATA = {"onnxgrad.classes", "onnxgrad.inputs", "onnxgrad.step"}


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda p: p.stem)
def test_docstring_examples_run(path):
    if "sklearn" in path.parts:
        pytest.importorskip("sklearn", reason="scikit-learn is an extra")
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_names_in_python_are_there(page):
    for name in set(re.findall(r"`(onnxgrad(?:\.\w+)+)[`(]", page.read_text())) - METADATA:
        pkgutil.resolve_name(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def linear_model() -> onnx.ModelProto:
    """logits = x w"""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["logits"])]
    weights = onnx.numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 2])],
        [weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("page", ["README.md", "docs/description.md"])
def test_readme_example_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(linear_model(), "model.onnx")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert blocks
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    for block in blocks:
        names: dict = {"x": x, "y": (x[:, 0] > 0).astype(np.int64)}
        exec(block, names)
        assert names["session"].get_outputs()[1].name == "w_grad"
        assert (tmp_path / "tuned.onnx").exists()


def test_the_first_line_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(linear_model(), "model.onnx")
    rows = np.random.default_rng(0).normal(size=(40, 3))
    lines = ["a,b,c,label", *(f"{a},{b},{c},{int(a > 0)}" for a, b, c in rows)]
    (tmp_path / "train.csv").write_text("\n".join(lines))
    shell = re.search(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S).group(1)
    assert main(shlex.split(shell)[1:]) == 0
    assert (tmp_path / "tuned.onnx").exists()


def test_extras_that_are_named_are_there():
    """Every `pip install 'onnxgrad[extra]'` of a message or a page works, also in zsh, which needs the quotes."""
    text = (ROOT / "pyproject.toml").read_text()
    extras = set(re.findall(r"^(\w+) = \[", text[text.index("optional-dependencies") :], re.M))
    files = [*(ROOT / "src").rglob("*.py"), *PAGES]
    for path in files:
        written = path.read_text()
        assert "pip install onnxgrad[" not in written, f"{path.name}: quote onnxgrad[…]"
        for names in re.findall(r"onnxgrad\[([\w,]+)\]", written):
            assert set(names.split(",")) <= extras, f"{path.name} names onnxgrad[{names}]"


def test_readme_names_what_exists():
    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", text, re.M):
        assert re.search(rf"^{target}:", makefile, re.M)


def test_the_walk_of_one_batch_names_files_that_are_there():
    text = (ROOT / "docs" / "architecture.md").read_text()
    walk = text[text.index("## The walk of one batch") : text.index("## One operator, one file")]
    files = re.findall(r"^\d+\. `([^`]+)`", walk, re.M)
    assert 20 < len(files) <= 40
    assert len(set(files)) == len(files)
    assert [f for f in files if not (ROOT / f).is_file()] == []
