"""docs/tutorials: every block of every page runs, in the order of the page, and does what the page says."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from places import DOCS

import onnxgrad
from onnxgrad.cli import main

PAGES = DOCS / "tutorials"


def blocks(page: str) -> list[tuple[str, str]]:
    """The language and the text of every block of code."""
    return re.findall(r"```(\w+)\n(.*?)```", (PAGES / f"{page}.md").read_text(), re.S)


def run_page(page: str) -> dict:
    """Run a page's Python and its `onnxgrad` lines; return the names that Python has in the end."""
    names: dict = {"__name__": page}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, f"{page}.md", "exec"), names)
        elif language == "sh":
            for line in text.splitlines():
                words = shlex.split(line, comments=True)
                if words and words[0] == "onnxgrad":
                    assert main(words[1:]) == 0, line
    return names


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def accuracy(path: str, x: np.ndarray, y: np.ndarray) -> float:
    session = onnxruntime.InferenceSession(path)
    return float((session.run(None, {"x": x})[0].argmax(1) == y).mean())


def test_every_page_is_tested_and_linked():
    pages = {p.stem for p in PAGES.glob("*.md")}
    assert pages == {
        "fine-tune",
        "time-series",
        "own-loss",
        "gradients",
        "resume",
        "cpp",
        "lora",
        "quantize",
    }
    readme = (PAGES.parents[1] / "README.md").read_text()
    assert [p for p in pages if f"docs/tutorials/{p}.md" not in readme] == []


def test_fine_tune():
    pytest.importorskip("PIL")
    names = run_page("fine-tune")
    new = names["pale"][1000:1300].astype(np.float32), names["labels"][1000:1300]
    before, head, tuned = (
        accuracy(p, *new) for p in ("runs/demo/cnn/tuned.onnx", "head.onnx", "tuned.onnx")
    )
    assert before < 0.7
    assert head > before + 0.1
    assert tuned > 0.9
    assert len(Path("answers.csv").read_text().splitlines()) == 301
    assert Path("photos.csv").read_text().startswith("file,class,logits_0,")


def test_quantize(capsys):
    found = run_page("quantize")
    table = capsys.readouterr().out
    assert table.count("post-training") == 3
    assert found["kinds"] >= {onnx.TensorProto.INT8}
    accuracies = found["found"]
    assert accuracies["int8"] >= accuracies["float"] - 0.01
    assert accuracies["int4"] >= accuracies["float"] - 0.03
    sizes = {name: Path(f"{name}.onnx").stat().st_size for name in ("float", "int8", "int4")}
    assert sizes["int8"] < sizes["float"]


def test_lora(capsys):
    pytest.importorskip("tokenizers")
    names = run_page("lora")
    said = {
        name: [json.loads(line) for line in Path(f"{name}.jsonl").read_text().splitlines()]
        for name in ("before", "after")
    }
    assert {r["prompt"]: r["completion"] for r in said["after"]} == names["answers"]
    assert {r["prompt"]: r["completion"] for r in said["before"]} != names["answers"]
    assert np.abs(names["tuned"] - names["plain"]).max() > 0.1
    assert names["history"]["loss"][-1] < 0.05
    files = {p.name for p in Path("same-adapter").iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "adapter.onnx_adapter"} <= files


def test_time_series():
    names = run_page("time-series")
    true = np.sin(2 * np.pi * np.arange(2000, 2048) / 24)
    assert np.corrcoef(names["forecast"], true)[0, 1] > 0.9


def test_own_loss(capsys):
    names = run_page("own-loss")
    assert names["history"]["loss"][-1] < 0.5 * names["history"]["loss"][0]
    assert np.mean(names["seen"][-20:]) < np.mean(names["seen"][:20])
    assert names["trainer"].evaluate(names["images"], names["labels"])["accuracy"] > 0.9
    frozen = onnxgrad.Trainer("tuned.onnx", loss="cross_entropy").get_weights()
    noisy = onnxgrad.Trainer("noisy.onnx", loss="cross_entropy").get_weights()
    same = {n.split(".")[0] for n in frozen if np.array_equal(frozen[n], noisy[n])}
    assert same == {"block0"}


def test_gradients():
    names = run_page("gradients")
    assert names["logits"].argmax() == names["wish"]
    assert np.abs(names["changed"] - names["picture"]).max() < 0.7
    jacobian = np.stack([
        names["session"].run(["x_grad"], {"x": names["picture"], "logits_grad": row[None]})[0][0]
        for row in np.eye(10, dtype=np.float32)
    ])  # fmt: skip
    expected = (jacobian * names["v"][0]).sum((1, 2, 3))
    np.testing.assert_allclose(names["product"][0], expected, rtol=1e-3, atol=1e-4)
    plain = onnxruntime.InferenceSession("anywhere.onnx")
    feeds = {"x": names["picture"], "logits_grad": np.eye(10, dtype=np.float32)[:1]}
    ours = names["session"].run(None, feeds)
    for a, b in zip(plain.run(None, feeds), ours, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_resume():
    run_page("resume")
    assert Path("runs/cut/report.html").exists()


def onnxruntime_home() -> Path | None:
    """Headers and library of onnxruntime for C++, where someone has put them."""
    home = os.environ.get("ONNXRUNTIME_HOME", "")
    return Path(home) if home and (Path(home) / "include/onnxruntime_cxx_api.h").exists() else None


@pytest.mark.skipif(onnxruntime_home() is None, reason="ONNXRUNTIME_HOME names no onnxruntime")
@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
def test_cpp():
    run_page("cpp")
    ((_, program),) = [b for b in blocks("cpp") if b[0] == "cpp"]
    Path("gradient.cpp").write_text(program)
    build = blocks("cpp")[-1][1]
    environment = {**os.environ, "ONNXGRAD_LIBRARY": onnxgrad.library_path()}
    done = subprocess.run(
        build, shell=True, env=environment, capture_output=True, text=True, check=True
    )
    ours = np.array(done.stdout.split(), np.float32)
    feeds = {
        "x": np.full((1, 1, 8, 8), 0.5, np.float32),
        "logits_grad": np.eye(10, dtype=np.float32)[[3]],
    }
    expected = onnxgrad.session("gradient.onnx").run(["x_grad"], feeds)[0].ravel()
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
