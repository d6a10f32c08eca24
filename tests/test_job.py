"""`onnxgrad train`, `eval`, `predict` and `demo`, as a user meets them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxgrad.cli import main
from onnxgrad.demo import digits, models

RNG = np.random.default_rng(11)
X = RNG.normal(size=(120, 4)).astype(np.float32)
LABEL = (X @ RNG.normal(size=(4, 3))).argmax(1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        mlp (float[N, 4] x) => (float[N, 3] logits) { h = MatMul(x, w1)  a = Tanh(h)  logits = MatMul(a, w2) }""")
    for name, shape in (("w1", (4, 8)), ("w2", (8, 3))):
        array = np.random.default_rng(1).normal(0, 0.5, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, "model.onnx")
    np.savez("d.npz", x=X, label=LABEL)
    return tmp_path


TRAIN = ("train", "model.onnx", "--data", "d.npz", "-o", "t.onnx")


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


# ---- train


@pytest.mark.parametrize("kind", ["npz", "csv", "jsonl", "npy"])
def test_every_format_trains_with_one_line(kind, folder, capsys):
    data = f"d.{kind}"
    if kind == "csv":
        write_csv(data)
    elif kind == "jsonl":
        write_jsonl(data)
    elif kind == "npy":
        data = "arrays"
        Path(data).mkdir()
        np.save("arrays/x.npy", X)
        np.save("arrays/label.npy", LABEL)
    code, out, err = run(
        capsys, "train", "model.onnx", "--data", data, "-o", "tuned.onnx", "--lr", 0.05
    )
    assert (code, err) == (0, "")
    assert "target: 'label', by its name" in out
    assert "loss: cross_entropy, because the targets are integers" in out
    session = onnxruntime.InferenceSession("tuned.onnx")
    assert (session.run(None, {"x": X})[0].argmax(1) == LABEL).mean() > 0.9
    for name in ("args.yaml", "results.csv", "report.html", "checkpoints"):
        assert (folder / "runs" / "model-1" / name).exists()


def test_text_labels_become_classes(folder, capsys):
    rows = [
        ",".join([*(f"{v:.6f}" for v in x), ("ant", "bee", "cat")[y]])
        for x, y in zip(X, LABEL, strict=True)
    ]
    Path("d.csv").write_text("\n".join(["a,b,c,d,kind", *rows]))
    more = ("--target", "kind", "-o", "t.onnx", "--epochs", 1)
    code, out, _ = run(capsys, "train", "model.onnx", "--data", "d.csv", *more)
    assert code == 0
    assert "3 classes, numbered in alphabetical order" in out
    assert ">bee<" in (folder / "runs" / "model-1" / "report.html").read_text()


def test_config_file_and_flags_are_one_definition(folder, capsys):
    code, out, _ = run(
        capsys,
        *TRAIN,
        "--epochs",
        3,
        "--print-config",
    )
    assert code == 0
    assert "epochs: 3  # passes over the data" in out
    Path("c.yaml").write_text(out)
    code, out, _ = run(capsys, "train", "model.onnx", "--config", "c.yaml", "--epochs", 2)
    assert code == 0
    assert "epoch 2/2" in out
    assert "epoch 3" not in out


def test_json_lines(folder, capsys):
    code, out, _ = run(capsys, *TRAIN, "--epochs", 2, "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [e["event"] for e in events] == ["epoch", "epoch", "done"]


def test_quiet_says_nothing(folder, capsys):
    assert run(capsys, *TRAIN, "--epochs", 1, "--quiet") == (0, "", "")


def test_report_is_self_contained_and_escaped(folder, capsys):
    os.rename("model.onnx", "<b>model.onnx")
    code, *_ = run(
        capsys,
        "train",
        "<b>model.onnx",
        "--data",
        "d.npz",
        "-o",
        "t.onnx",
        "--epochs",
        1,
        "--run-dir",
        "r",
    )
    text = Path("r/report.html").read_text()
    assert code == 0
    assert "&lt;b&gt;model.onnx" in text
    assert "<b>model" not in text
    assert not re.search(r"<script|https?://(?!www\.w3\.org)|<link|<img", text)


# ---- interruption


def test_ctrl_c_saves_a_checkpoint_and_the_resumed_run_ends_in_the_same_bits(folder):
    command = [
        sys.executable,
        "-m",
        "onnxgrad",
        "train",
        "model.onnx",
        "--data",
        "d.npz",
        "--seed",
        "3",
    ]
    settings = ["--epochs", "400", "--batch-size", "8", "--dropout", "0.1", "--quiet"]
    subprocess.run([*command, *settings, "-o", "whole.onnx", "--run-dir", "whole"], check=True)
    cutting = [*command, *settings, "-o", "cut.onnx", "--run-dir", "cut"]
    cut = subprocess.Popen(cutting, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(Path("cut").glob("checkpoints/step-*")) and time.monotonic() < deadline:
        time.sleep(0.005)
    cut.send_signal(signal.SIGINT)
    out, _ = cut.communicate(timeout=60)
    if cut.returncode == 0:
        pytest.skip("the run ended before the interruption")
    assert cut.returncode == 130
    assert "onnxgrad train --resume cut" in out
    assert not Path("cut.onnx").exists()
    subprocess.run(
        [sys.executable, "-m", "onnxgrad", "train", "--resume", "cut", "--quiet"], check=True
    )
    assert Path("cut.onnx").read_bytes() == Path("whole.onnx").read_bytes()


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
    ("other names", npz(z=X, label=LABEL, q=X), "has no array for input 'x'"),
    ("no target", npz(x=X), "has no target: name it with --target"),
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


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--loss", "crossentropy"], "crossentropy"),
        (["--optimizer", "adamx"], "adamx"),
        (["--val", "1.5"], "--val is 1.5"),
        (["--trainable", "nothing.*"], "nothing"),
        (["--config", "missing.yaml"], "missing.yaml: no such file"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_wrong_settings_are_refused(arguments, expected, folder, capsys):
    code, _, err = run(capsys, *TRAIN, *arguments)
    assert code == 2
    assert expected in err


def test_divergence_has_its_own_exit_code(folder, capsys):
    code, _, err = run(
        capsys,
        *TRAIN,
        "--optimizer",
        "sgd",
        "--lr",
        1e39,
    )
    assert code == 4
    assert "not finite" in err


# ---- eval, predict, demo


def test_eval_and_predict(folder, capsys):
    code, out, _ = run(capsys, "eval", "model.onnx", "--data", "d.npz", "--json")
    assert code == 0
    assert set(json.loads(out)) == {"loss", "accuracy"}
    code, out, _ = run(capsys, "predict", "model.onnx", "--data", "d.npz", "-o", "p.npz")
    assert (code, out) == (0, "wrote p.npz: logits [120, 3]\n")
    expected = onnxruntime.InferenceSession("model.onnx").run(None, {"x": X})[0]
    np.testing.assert_allclose(np.load("p.npz")["logits"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", sorted(models.MODELS))
def test_demo_models_are_valid_and_small(kind, tmp_path):
    models.write(kind, tmp_path / "m.onnx")
    images, _ = digits.load()
    assert images.shape == (1797, 1, 8, 8)
    logits = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": images[:5]})[0]
    assert logits.shape == (5, 10)


@pytest.mark.parametrize(
    ("kind", "least"), [("cnn", 0.97), ("gru", 0.95), ("lstm", 0.95), ("transformer", 0.93)]
)
def test_demo_reaches_its_accuracy(kind, least, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "demo", "--model", kind)
    assert code == 0
    after = float(re.search(r"before, ([\d.]+)% after", out).group(1)) / 100
    assert after >= least
