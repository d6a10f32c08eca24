"""Files whose names are no UTF-8: Linux allows any bytes, and a run with such a file ends like any other."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx

from onnxgrad.cli import main
from onnxgrad.files.paths import printable

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[N, 3] x) => (float[N, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { y = MatMul(x, w) }"""


def test_a_run_of_such_files_writes_all_that_it_should(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model, data = (os.fsdecode(b"\xff\xfe" + ending) for ending in (b".onnx", b".npz"))
    Path(model).write_bytes(onnx.parser.parse_model(MODEL).SerializeToString())
    x = np.random.default_rng(0).standard_normal((12, 3)).astype(np.float32)
    np.savez(data, x=x, y=x[:, :2])
    command = ["train", model, "--data", data, "--loss", "mse", "--epochs", "1"]
    assert main([*command, "-o", "out.onnx", "--run-dir", "run"]) == 0
    assert onnx.load("out.onnx").graph.node[0].op_type == "MatMul"
    for name in ("report.html", "args.yaml", "args.json"):
        (tmp_path / "run" / name).read_text(encoding="utf-8")
    assert main(["train", "--resume", "run", "--epochs", "2", "--quiet"]) == 0
    capsys.readouterr()
    assert main([*command, "-o", os.fsdecode(b"\xff.onnx")]) == 2  # onnxruntime could not try it
    assert "has bytes that are not text" in capsys.readouterr().err


def test_what_is_no_text_is_printed_as_such():
    assert printable("a\udcff\ud800b\x1b[2J") == "a��b�[2J"
