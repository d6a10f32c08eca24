"""`onnxgrad train`, `eval`, `predict` and `demo`, as a user meets them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from job.problem import LABEL, X, run, write_csv, write_jsonl

from onnxgrad.demo import digits, models

TRAIN = ("train", "model.onnx", "--data", "d.npz", "-o", "t.onnx")


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


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "command-train.md").read_text()


def test_json_lines_are_as_documented(folder, capsys):
    code, out, _ = run(capsys, *TRAIN, "--epochs", 2, "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [e["event"] for e in events] == ["start", "epoch", "epoch", "done"]
    for event in events:
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{event['event']}`"))
        unknown = [k for k in event if k != "val_accuracy" and k != "event" and f"`{k}`" not in row]
        assert unknown == []


def test_the_run_folder_is_as_documented(folder, capsys):
    assert run(capsys, *TRAIN, "--epochs", 2, "--quiet")[0] == 0
    made = {p.name for p in Path("runs/model-1").iterdir()}
    assert made == {"args.yaml", "args.json", "results.csv", "checkpoints", "report.html", "result.json",
                    "README.md"}  # fmt: skip
    assert [name for name in made if f"`{name}" not in PAGE] == []
    kept = sorted(p.name for p in Path("runs/model-1/checkpoints").iterdir())
    assert kept[0] == "best"
    assert all(name.startswith("step-") for name in kept[1:])


def test_the_report_has_every_part(folder, capsys):
    assert run(capsys, *TRAIN, "--epochs", 2, "--quiet")[0] == 0
    report = Path("runs/model-1/report.html").read_text()
    titles = re.findall(r"<h2>(.*?)</h2>", report)
    assert titles == ["Curves", "Confusion matrix", "Classes", "Reliability", "Examples most wrong",
                      "Parameters", "Decisions", "Time by part", "Settings", "Environment"]  # fmt: skip
    assert "forward and backward" in report
    assert "last gradient" in report


def test_quiet_says_nothing(folder, capsys):
    assert run(capsys, *TRAIN, "--epochs", 1, "--quiet") == (0, "", "")


def test_text_of_the_data_is_escaped_in_the_report(folder, capsys):
    words = np.array(["<script>a</script>", "b&b", '"c"'])
    np.savez("d.npz", **{"x": X, "<img src=x>": words[LABEL]})
    assert run(capsys, *TRAIN, "--epochs", 1, "--quiet")[0] == 0
    report = Path("runs/model-1/report.html").read_text()
    assert "&lt;script&gt;a" in report
    assert "b&amp;b" in report
    assert not re.search(r"<script|<img", report)


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


def interrupted(command: list[str], run: Path) -> str:
    """What a run says that gets Ctrl-C after its first epoch. On a busy machine the signal may come when the run has
    ended already: then once more."""
    results = run / "results.csv"  # grows by a line with each epoch
    for _ in range(5):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            if results.exists() and len(results.read_text().splitlines()) > 1:
                break
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        if process.returncode == 130:
            return out
        assert process.returncode == 0
        shutil.rmtree(run)
        Path("cut.onnx").unlink()
    pytest.fail("five runs ended before the interruption")


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
    settings = ["--epochs", "1500", "--batch-size", "8", "--dropout", "0.1", "--quiet"]
    subprocess.run([*command, *settings, "-o", "whole.onnx", "--run-dir", "whole"], check=True)
    out = interrupted([*command, *settings, "-o", "cut.onnx", "--run-dir", "cut"], Path("cut"))
    assert "onnxgrad train --resume cut" in out
    assert not Path("cut.onnx").exists()
    subprocess.run(
        [sys.executable, "-m", "onnxgrad", "train", "--resume", "cut", "--quiet"], check=True
    )
    assert Path("cut.onnx").read_bytes() == Path("whole.onnx").read_bytes()


# ---- wrong settings


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--loss", "crossentropy"], "crossentropy"),
        (["--optimizer", "adamx"], "adamx"),
        (["--val", "1.5"], "--val is 1.5"),
        (["--trainable", "nothing.*"], "nothing"),
        (["--val", "nan"], "--val is nan, expected a share from 0 to 1, or a file"),
        (["--val", "0.999"], "leaves nothing of 120 rows to train on"),
        (["--lr", "nan"], "--lr is nan, expected a number above 0"),
        (["--seed", str(1 << 63)], "--seed is 9.22337e+18, expected at least 0 and at most"),
        (["--seed", "-1"], "--seed is -1, expected at least 0"),
        (["--batch-size", "0"], "--batch-size is 0, expected at least 1"),
        (["--dropout", "1"], "--dropout is 1, expected at most 0.999"),
        (["--metrics", "acc"], "metric is 'acc', expected one of"),
        (["--ignore", "id"], "d.npz has no column 'id'; it has x, label"),
        (["--run-dir", "d.npz"], "--run-dir d.npz is a file"),
        (["-o", "model.onnx"], "-o model.onnx is the model itself"),
        (["-o", "d.npz/t.onnx"], "-o d.npz/t.onnx cannot be written"),
        (["--config", "missing.yaml"], "missing.yaml: no such file"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_wrong_settings_are_refused(arguments, expected, folder, capsys):
    code, _, err = run(capsys, *TRAIN, *arguments)
    assert code == 2
    assert expected in err


CONFIGS = [
    ("epoch: 3", "unknown setting 'epoch', did you mean epochs?"),
    ("epochs: many", "epochs is 'many', expected a whole number"),
    ("freeze_bn: 3", "freeze_bn is 3, expected true or false"),
    ("- a", "holds a list, expected settings such as 'epochs: 5'"),
    ("{", "is not YAML"),
    ("lr: 1" + "0" * 400, "--lr is inf, expected a number above 0"),
]


@pytest.mark.parametrize(("content", "expected"), CONFIGS, ids=[c[0][:20] for c in CONFIGS])
def test_wrong_config_files_are_refused(content, expected, folder, capsys):
    Path("c.yaml").write_text(content)
    code, _, err = run(capsys, *TRAIN, "--config", "c.yaml")
    assert code == 2
    assert (
        f"c.yaml: {expected}" in err
        or f"c.yaml {expected}" in err
        or err.startswith(f"onnxgrad: {expected}")
    )


def test_a_config_file_may_write_1e_3(folder, capsys):
    Path("c.yaml").write_text("lr: 1e-3\nmax-time: 5\n")
    code, out, _ = run(capsys, *TRAIN, "--config", "c.yaml", "--print-config")
    assert code == 0
    assert "lr: 0.001  # learning rate" in out
    assert "max_time: 5.0" in out


def test_a_refused_resume_leaves_the_run_as_it_was(folder, capsys):
    line = (*TRAIN, "--run-dir", "r", "--epochs", 2, "--quiet")
    assert run(capsys, *line)[0] == 0
    code, _, err = run(capsys, *line)
    assert code == 2
    assert "--run-dir r holds a run already: continue it with --resume r" in err
    other = onnx.load("model.onnx")
    other.graph.node[1].op_type = "Relu"
    onnx.save(other, "other.onnx")
    before = Path("r/args.json").read_bytes()
    code, _, err = run(capsys, "train", "other.onnx", "--resume", "r")
    assert code == 2
    assert "it is a checkpoint of another model" in err
    assert Path("r/args.json").read_bytes() == before
    assert run(capsys, "train", "--resume", "r", "--epochs", 3, "--quiet")[0] == 0
    assert len(Path("r/results.csv").read_text().splitlines()) == 4
    assert run(capsys, "train", "--resume", "nothing")[0] == 2


def test_a_run_that_time_stops_can_be_resumed_to_the_same_bits(folder, capsys):
    line = ("train", "model.onnx", "--data", "d.npz", "--batch-size", 4, "--epochs", 8, "--quiet")
    assert run(capsys, *line, "-o", "whole.onnx", "--run-dir", "a")[0] == 0
    assert run(capsys, *line, "-o", "cut.onnx", "--run-dir", "b", "--max-time", 1e-4)[0] == 0
    assert [p.name for p in Path("b/checkpoints").glob("step-*")] == ["step-00000001"]
    assert run(capsys, "train", "--resume", "b", "--max-time", 0, "--quiet")[0] == 0
    assert Path("cut.onnx").read_bytes() == Path("whole.onnx").read_bytes()


def test_short_epochs_do_not_wait_for_checkpoints(folder, capsys, monkeypatch):
    from onnxgrad.job import run as job

    monkeypatch.setattr(job, "SAVE_SECONDS", 1e9)
    assert run(capsys, *TRAIN, "--run-dir", "r", "--epochs", 6, "--quiet")[0] == 0
    kept = sorted(p.name for p in Path("r/checkpoints").iterdir())
    assert kept == ["best", "step-00000003", "step-00000018"]  # the first and the final epoch


def test_an_interruption_before_the_training_says_so(folder, capsys, monkeypatch):
    from onnxgrad.job import prepare

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare, "find_target", interrupt)
    code, out, err = run(capsys, *TRAIN)
    assert (code, err) == (130, "")
    assert "nothing was changed. Start it again with the same command" in out
    assert not Path("runs").exists()


def test_an_operator_without_a_gradient_has_its_own_exit_code(folder, capsys):
    model = onnx.load("model.onnx")
    model.graph.node[1].op_type, model.graph.node[1].domain = "Mystery", "d"
    model.opset_import.append(onnx.helper.make_opsetid("d", 1))
    onnx.save(model, "strange.onnx")
    code, _, err = run(capsys, "train", "strange.onnx", "--data", "d.npz", "-o", "t.onnx")
    assert code == 3
    assert "d.Mystery" in err


def test_the_live_line_fits_into_80_columns(folder):
    import io

    from rich.console import Console

    from onnxgrad.cli.progress import screen
    from onnxgrad.job.config import Config
    from onnxgrad.job.run import TrainingJob

    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, color_system=None)
    job = TrainingJob("model.onnx", Config(data="d.npz", output="t.onnx", epochs=100))
    job.start(screen(console, "live"))
    shown = re.split(r"[\r\n]|\x1b\[[0-9;?]*[A-Za-z]", file.getvalue())
    live = [line for line in shown if re.match(r"epoch\s+\d+/100 [━╺╸]", line)]
    assert live
    assert max(map(len, shown)) <= 80
    assert any(re.search(r"loss \S+  accuracy \S+  [\d,]+ rows/s \d\d:\d\d", line) for line in live)


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
