"""Every kind of tensor and note that the code knows is in docs/inspect.md, with a sentence that is really said."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from graph.test_formats import trees
from model import merged_models as models
from model.test_precision import network

from onnxgrad import inspect

ROOT = Path(__file__).resolve().parents[2]
PAGE = " ".join((ROOT / "docs" / "inspect.md").read_text().split())
MASK = np.triu(np.full((8, 8), -np.inf), 1).astype(np.float32)


def restored() -> onnx.ModelProto:
    nodes = [models.node("Gemm", "x fc.weight", "y", call="fc weight bias")]
    return models.model(nodes, {"fc.weight": models.normal(4, 3)}, y=("N", 3))


def repeated() -> onnx.ModelProto:
    nodes = [models.node("Concat", "expand x", "c", axis=1), models.node("MatMul", "c w", "y")]
    tensors = {"expand": np.tile(models.normal(1, 1, 4), (6, 1, 1)), "w": models.normal(4, 2)}
    infos = {"expand": {models.FOLDED: "['cls', 'val_3']"}}
    return models.model(nodes, tensors, x=(6, 3, 4), y=(6, 4, 2), infos=infos)


def padded() -> onnx.ModelProto:
    table = models.normal(7, 4)
    table[2] = 0
    nodes = [models.node("Gather", "embed.weight x", "e"), models.node("MatMul", "e w", "y")]
    tensors = {"embed.weight": table, "w": models.normal(4, 2)}
    return models.model(nodes, tensors, x=("N", 5), y=("N", 5, 2), kind=onnx.TensorProto.INT64)


def computed() -> onnx.ModelProto:
    """What is left of weight normalisation, g·v/‖v‖."""
    infos = {"mul": {models.FOLDED: "['div', 'linalg_vector_norm', 'conv.original1', 'val_0']"}}
    nodes = [models.node("MatMul", "x mul", "y")]
    return models.model(nodes, {"mul": models.normal(4, 3)}, y=("N", 3), infos=infos)


def unnamed() -> onnx.ModelProto:
    """c·s of two parameters, by the older exporter."""
    nodes = [models.node("Einsum", "x onnx::Einsum_7", "y", equation="ni,io->no")]
    return models.model(nodes, {"onnx::Einsum_7": models.normal(4, 3)}, y=("N", 3))


def scaled() -> onnx.ModelProto:
    """A parameter of the network itself, whose formula is the last call alone: spectral norm, a temperature."""
    infos = {"div": {models.FOLDED: "['prototypes', 'clone', 'val_0']"}}
    nodes = [models.node("MatMul", "x div", "y")]
    return models.model(nodes, {"div": models.normal(4, 3)}, y=("N", 3), infos=infos)


def buffered() -> onnx.ModelProto:
    """Random Fourier features, a buffer of the network that looks like any weight."""
    nodes = [models.node("MatMul", "x frequencies", "h"), models.node("MatMul", "h fc.weight", "y")]
    tensors = {"frequencies": models.normal(4, 4), "fc.weight": models.normal(4, 3)}
    return models.model(nodes, tensors, y=("N", 3))


def element() -> onnx.ModelProto:
    """gains[1], which the older exporter wrote as a number."""
    nodes = [models.node("MatMul", "x fc.weight", "h"), models.node("Mul", "h onnx::Mul_9", "y")]
    tensors = {"fc.weight": models.normal(4, 3), "onnx::Mul_9": np.float32(0.0123456)}
    return models.model(nodes, tensors, y=("N", 3))


SAID = {
    "perhaps buffers": buffered,
    "perhaps parameters": element,
    "computed weights": computed,
    "computed weights, by the last call": scaled,
    "computed weights, by the older exporter": unnamed,
    "untied": models.torchscript_norms,
    "tied": models.tied_embedding,
    "tied, transposed": lambda: models.tied_embedding(True),
    "restored": restored,
    "repeated": repeated,
    "padding": padded,
    "no weights": trees,
    "precision": lambda: network("float16"),
    "not a weight": lambda: models.beside(MASK),
}


@pytest.mark.parametrize("title", SAID)
def test_the_sentence_in_the_docs_is_the_one_that_is_said(title):
    kind = title.split(",")[0]
    notes = [n for n in inspect(SAID[title]()).notes if n.kind == kind]
    assert notes
    assert f"`{kind}`" in PAGE
    assert str(notes[0]) in PAGE


NOTE = re.compile(r'Note\(\s*"([a-z ]+)"')


@pytest.mark.parametrize("room", ["model", "inspection", "train"])
def test_every_note_in_the_code_is_in_the_docs(room):
    files = sorted((ROOT / "src" / "onnxgrad" / room).rglob("*.py"))
    kinds = {kind for f in files for kind in NOTE.findall(f.read_text())}
    assert kinds or room == "inspection"
    assert [k for k in sorted(kinds) if f"`{k}`" not in PAGE] == []


def test_every_kind_and_reason_in_the_code_is_in_the_docs():
    code = "".join(
        (ROOT / "src" / "onnxgrad" / f).read_text()
        for f in ("model/roles.py", "model/patterns.py", "inspection/notes.py", "model/modes.py")
    )
    kinds = set(re.findall(r'Note\(\s*"([a-z ]+)"', code))
    kinds |= set(re.findall(r'return \(?"([a-z]+)", f?"', code))
    kinds |= set(re.findall(r'^        "([a-z ]+)": _', code, flags=re.M))
    assert len(kinds) > 15
    assert [k for k in sorted(kinds) if f"`{k}`" not in PAGE] == []


# Where sentences of inspect and the Trainer's notes are written; what is raised is no such sentence.
WRITERS = ["model/**/*.py", "inspection/*.py", "train/step/build.py", "train/step/settle.py", "train/step/setup.py",
           "train/files/verify.py", "cli/inspect.py", "autodiff/plan.py", "autodiff/untrainable.py"]  # fmt: skip
# Texts of other things: how an error begins or ends, what a flag is for, what is searched for.
OTHER = ("the node that makes", "lora: the target", "matches none of the model's", "layers; the nearest are",
         "nothing is left after", "for their logarithms, cross", "target=torch", "ONNXRuntimeError")  # fmt: skip


def texts(tree: ast.AST) -> Iterator[list[str]]:
    """The fixed parts of every text of four words or more that is neither raised, nor a docstring, nor help."""
    passed: set[int] = set()
    for node in ast.walk(tree):
        calls_help = isinstance(node, ast.keyword) and node.arg in ("help", "description")
        if isinstance(node, (ast.Raise, ast.Assert)) or calls_help:
            passed |= {id(inner) for inner in ast.walk(node)}
        elif isinstance(node, ast.JoinedStr):
            passed |= {id(inner) for inner in ast.walk(node) if inner is not node}
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            passed.add(id(node.value))
    for node in ast.walk(tree):
        if id(node) in passed or not isinstance(node, (ast.JoinedStr, ast.Constant)):
            continue
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        parts = [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
        if sum(len(part.split()) for part in parts) >= 4:
            yield parts


def unsaid(code: str, page: str) -> list[str]:
    """Parts of a source file's sentences that a page lacks; shorter ones than eight letters tell nothing."""
    found = [
        re.sub(r"\[/?[a-z ]+\]", "", part) for parts in texts(ast.parse(code)) for part in parts
    ]
    found = [" ".join(part.split()).strip(" '`,;:.()[]") for part in found]
    return [t for t in found if len(t) >= 8 and t not in page and not any(o in t for o in OTHER)]


def test_every_sentence_in_the_code_is_in_the_docs():
    """Not its kind alone: a sentence that the code gains needs an example on the page."""
    files = [f for pattern in WRITERS for f in sorted((ROOT / "src" / "onnxgrad").glob(pattern))]
    assert len(files) > 40
    assert {f.name: found for f in files if (found := unsaid(f.read_text(), PAGE))} == {}


def test_a_sentence_that_the_page_lacks_is_found():
    code = 'def f(n):\n    """A docstring of four words."""\n    return Note("new", n, f"tensor {n!r} is painted blue")'
    assert unsaid(code, PAGE) == ["is painted blue"]
    assert unsaid(code, f"{PAGE} tensor 'x' is painted blue") == []
