"""A small model and data for it, in a folder of its own; and how to call the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx

from onnxgrad.cli import main

RNG = np.random.default_rng(11)
X = RNG.normal(size=(120, 4)).astype(np.float32)
LABEL = (X @ RNG.normal(size=(4, 3))).argmax(1)


def write_problem() -> None:
    """Write model.onnx and d.npz into the current folder."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        mlp (float[N, 4] x) => (float[N, 3] logits) { h = MatMul(x, w1)  a = Tanh(h)  logits = MatMul(a, w2) }""")
    for name, shape in (("w1", (4, 8)), ("w2", (8, 3))):
        array = np.random.default_rng(1).normal(0, 0.5, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, "model.onnx")
    np.savez("d.npz", x=X, label=LABEL)


def run(capsys, *arguments) -> tuple[int, str, str]:
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def write_csv(path: str, header: str = "a,b,c,d,label") -> None:
    rows = [",".join([*(f"{v:.6f}" for v in x), str(y)]) for x, y in zip(X, LABEL, strict=True)]
    Path(path).write_text("\n".join([header, *rows]) + "\n")


def write_jsonl(path: str) -> None:
    Path(path).write_text(
        "".join(
            json.dumps({"x": x.tolist(), "label": int(y)}) + "\n"
            for x, y in zip(X, LABEL, strict=True)
        )
    )
