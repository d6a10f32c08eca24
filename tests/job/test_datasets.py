"""Data for `onnxgrad train`: every format, and what is refused before the first step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from job.problem import LABEL, X, run

# ---- refusals: before the first step, and nothing is lost


def nan_npz(folder):
    bad = X.copy()
    bad[7, 2] = np.nan
    np.savez("bad.npz", x=bad, label=LABEL)
    return "bad.npz"


def npz(**arrays):
    def write(folder):
        np.savez("bad.npz", **arrays)
        return "bad.npz"

    return write


def text(name, content):
    def write(folder):
        (folder / name).write_bytes(content)
        return name

    return write


BAD_DATA = [
    ("a missing file", lambda f: "nothing.npz", "nothing.npz: no such file"),
    ("an empty file", text("e.csv", b""), "e.csv is empty"),
    ("an unknown ending", text("d.xyz", b"1"), "has the ending '.xyz'"),
    ("a folder without images", lambda f: str(f), "holds no images in folders by class"),
    (
        "a ragged CSV",
        text("r.csv", b"a,b,c,d,label\n1,2,3,4,0\n1,2,3,0\n"),
        "r.csv, line 3: 4 fields, expected 5",
    ),
    (
        "an empty cell",
        text("c.csv", b"a,b,c,d,label\n1,2,3,4,0\n1,,3,4,0\n"),
        "c.csv, line 3: column 'b' is empty",
    ),
    ("a binary called .csv", text("b.csv", bytes(range(128, 256)) * 9), "b.csv is no CSV text"),
    ("a text called .npz", text("t.npz", b"hello"), "t.npz is no .npz file"),
    ("broken JSON", text("j.jsonl", b'{"x": [1,2,3,4], "label": 0}\n{"x": \n'), "j.jsonl, line 2:"),
    (
        "other names",
        npz(z=X, label=LABEL, q=X),
        "has no column for input 'x' of the model; it has z, q",
    ),
    ("no target", npz(x=X), "has no target: every column is an input of the model"),
    ("rows that differ", npz(x=X, label=LABEL[:-1]), "the arrays differ in their number of rows"),
    ("another width", npz(x=X[:, :3], label=LABEL), "'x'"),
    ("labels out of range", npz(x=X, label=LABEL + 5), "label"),
    ("NaN", nan_npz, "row 7"),
]


@pytest.mark.parametrize(("title", "make", "expected"), BAD_DATA, ids=[b[0] for b in BAD_DATA])
def test_bad_data_is_refused_and_an_earlier_result_is_kept(title, make, expected, folder, capsys):
    Path("tuned.onnx").write_bytes(b"an earlier result")
    code, _, err = run(
        capsys, "train", "model.onnx", "--data", make(folder), "-o", "tuned.onnx", "--val", "0"
    )
    assert code == 2
    assert expected in err
    assert "Traceback" not in err
    assert Path("tuned.onnx").read_bytes() == b"an earlier result"
