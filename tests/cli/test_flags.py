"""Every flag of `--help` stands in the docs and in a test; settings survive a file; others' flags get an answer."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from job.problem import run, write_csv, write_problem
from places import DOCS, ROOT

from onnxgrad.cli import build_parser
from onnxgrad.cli.foreign_flags import FOREIGN
from onnxgrad.job.config import FIELDS, Config, command

COMMANDS = build_parser().commands
WRITTEN = [p for p in DOCS.rglob("*.md") if p.name != "flags.md"]
PAGES = "\n".join(p.read_text() for p in [ROOT / "README.md", ROOT / "SECURITY.md", *WRITTEN])
RUN = [*(ROOT / "tests").rglob("*.py"), *(DOCS / "tutorials").glob("*.md")]
TESTS = "\n".join(p.read_text() for p in RUN)
FLAGS = [
    pytest.param(
        tuple(action.option_strings), action.help, id=f"{name} {action.option_strings[-1]}"
    )
    for name, parser in COMMANDS.items()
    for action in parser.arguments
    if action.option_strings and action.dest != "help"
]


def is_named(flags: tuple[str, ...], text: str) -> bool:
    """Whether one of a flag's names stands in a text, as a word."""
    return any(re.search(rf"(?<![\w-]){re.escape(f)}(?![\w-])", text) for f in flags)


@pytest.mark.parametrize(("flags", "help"), FLAGS)
def test_every_flag_is_explained_in_a_page(flags, help):
    """docs/flags.md repeats --help; this asks for a sentence that somebody wrote."""
    found = is_named(flags, PAGES)
    assert found, f"no page explains {flags[-1]}: docs/command-train.md may"


@pytest.mark.parametrize(("flags", "help"), FLAGS)
def test_every_flag_is_in_a_test(flags, help):
    found = is_named(flags, TESTS)
    assert found, f"no test uses {flags[-1]}"


# ---- the way through a file


def changed(name: str):
    """A value that is not the default, and is allowed."""
    field = FIELDS[name]
    kind, limits = field.metadata["kind"], field.metadata.get("limits")
    if kind is bool:
        return True
    if kind is str:
        return f"a {name}, 'quoted' #1: x"
    low = max(limits[0], -2)
    return kind(low + (1 if kind is int else 0.125))


def test_settings_survive_the_way_through_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    wanted = Config(**{name: changed(name) for name in FIELDS})
    arguments = shlex.split(command("m.onnx", wanted))[1:]
    code, first, _ = run(capsys, *arguments, "--print-config")
    assert code == 0
    Path("c.yaml").write_text(first)
    code, second, _ = run(capsys, "train", "m.onnx", "--config", "c.yaml", "--print-config")
    assert (code, second) == (0, first)
    for name in FIELDS:
        assert f"\n{name}: " in f"\n{second}", name
    again = shlex.split(command("m.onnx", wanted))
    assert again[:3] == ["onnxgrad", "train", "m.onnx"]


def test_the_command_of_default_settings_is_short():
    assert command("m.onnx", Config(data="a b.csv", output="t.onnx")) == (
        "onnxgrad train m.onnx --data 'a b.csv' -o t.onnx"
    )


# ---- flags that no other test takes


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_problem()
    return tmp_path


def rates(path: str) -> list[float]:
    with open(path, newline="") as file:
        return [float(row["lr"]) for row in csv.DictReader(file)]


def test_every_and_factor_are_of_the_step_schedule(folder, capsys):
    more = (
        "--schedule",
        "step",
        "--every",
        1,
        "--factor",
        0.5,
        "--epochs",
        3,
        "--lr",
        0.1,
        "--quiet",
    )
    assert run(capsys, "train", "model.onnx", "--data", "d.npz", "-o", "t.onnx", *more)[0] == 0
    assert rates("runs/model-1/results.csv") == pytest.approx([0.1, 0.05, 0.025])


def test_a_plateau_without_validation_is_one_of_the_training_loss(folder, capsys):
    """It waited for a validation loss that never came, and the rate stayed as it was."""
    more = ["--schedule", "plateau", "--every", 1, "--factor", 0.5]
    more += ["--epochs", 5, "--lr", 1e-12, "--val", 0]
    code, out, _ = run(capsys, "train", "model.onnx", "--data", "d.npz", "-o", "t.onnx", *more)
    assert code == 0
    said = "--schedule plateau follows the training loss, because no rows are set aside; --val sets"
    assert said in " ".join(out.split())
    assert rates("runs/model-1/results.csv")[-1] < 1e-12


def test_a_floor_lies_below_the_learning_rate(folder, capsys):
    """A cosine rose to it."""
    more = ["--schedule", "cosine", "--floor", 1, "--lr", 0.1]
    code, _, err = run(capsys, "train", "model.onnx", "--data", "d.npz", "-o", "t.onnx", *more)
    assert code == 2
    assert "--floor is 1, expected at most the learning rate, 0.1" in err


def test_precisions_and_scales_of_quantised_nodes(folder, capsys):
    more = ("--quantize", "int8", "--quantize-nodes", "logits=float", "--quantize-scales", "fixed")
    code, _, err = run(
        capsys, "train", "model.onnx", "--data", "d.npz", "-o", "t.onnx", *more, "--epochs", 1
    )
    assert (code, err) == (0, "")
    first, second = [n for n in onnx.load("t.onnx").graph.node if n.op_type == "MatMul"]
    assert (first.input[1], second.input[1]) == ("w1_DequantizeLinear_Output", "w2")


def test_micro_batches_of_one_process_give_the_same_sums(folder, capsys):
    found = []
    for more in ((), ("--micro-batches", 2), ("--micro-batches", 2, "--fast-sum")):
        arguments = ("--data", "d.npz", "-o", "t.onnx", "--epochs", 1, "--quiet", *more)
        assert run(capsys, "train", "model.onnx", *arguments)[0] == 0
        tensors = onnx.load("t.onnx").graph.initializer
        found.append([onnx.numpy_helper.to_array(t) for t in tensors])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_numbers_may_be_categories(folder, capsys):
    write_csv("d.csv")
    code, _, err = run(
        capsys, "train", "model.onnx", "--data", "d.csv", "--categories", "nothing", "-o", "t.onnx"
    )
    assert code == 2
    assert "nothing" in err


def test_a_fused_step_uses_our_operators(folder, capsys):
    for more, domain in (((), False), (("--fused",), True)):
        code, _, err = run(
            capsys, "step", "model.onnx", "-o", "s.onnx", "--loss", "cross_entropy", *more
        )
        assert (code, err) == (0, "")
        nodes = onnx.load("s.onnx").graph.node
        assert any(n.domain == "com.microsoft" for n in nodes) == domain


def test_artifacts_as_ort_files(folder, capsys):
    code, _, err = run(capsys, "artifacts", "model.onnx", "--loss", "ce", "-o", "a", "--ort-format")
    assert (code, err) == (0, "")
    assert list(Path("a").glob("*.ort"))


def test_labels_beyond_the_model_get_an_advice_that_works(folder, capsys):
    data = dict(np.load("d.npz"))
    np.savez("four.npz", x=data["x"], label=data["x"].argmax(1))
    train = ("train", "model.onnx", "--data", "four.npz", "-o", "t.onnx", "--epochs", 1)
    code, _, err = run(capsys, *train)
    assert code == 2
    assert "holds the label 3 in row" in err
    assert "--classes auto makes a new last layer" in err
    assert run(capsys, *train, "--classes", "auto", "--quiet")[0] == 0


# ---- the demo


def test_the_demo_prints_the_command_that_it_runs(folder, capsys, monkeypatch):
    """Typed by hand, the line gives the same model."""
    from onnxgrad.cli import demo

    monkeypatch.setitem(demo.SETTINGS, "cnn", dict(epochs=1, lr=3e-3, batch_size=256))
    code, out, _ = run(capsys, "demo", "--folder", "demo place")
    assert code == 0
    line = next(x for x in out.splitlines() if x.startswith("$ onnxgrad train"))
    first = Path("demo place/cnn/tuned.onnx").read_bytes()
    arguments = shlex.split(line.removeprefix("$ onnxgrad "))
    arguments[arguments.index("--run-dir") + 1] = "again"
    assert run(capsys, *arguments, "--quiet")[0] == 0
    assert Path("demo place/cnn/tuned.onnx").read_bytes() == first


# ---- flags of other tools


@pytest.mark.parametrize("flag", FOREIGN)
def test_a_wish_gets_an_answer(flag, capsys):
    """Before anything is read: the model may not even be there."""
    code, _, err = run(capsys, "train", "missing.onnx", flag, "cuda", "--data", "d.npz")
    assert code == 2
    assert err.startswith(f"onnxgrad: train has no {flag}: ")


@pytest.mark.parametrize(
    "flag", sorted({f for text in FOREIGN.values() for f in re.findall(r"--[\w-]+", text)})
)
def test_answers_name_flags_that_are_there(flag):
    assert flag in COMMANDS["train"].flags()


def test_a_slip_of_the_pen_is_seen(capsys):
    code, _, err = run(capsys, "train", "m.onnx", "--bach-size", 3)
    assert (code, err) == (2, "onnxgrad: train has no --bach-size, did you mean --batch-size?\n")


def test_values_that_look_like_wishes_are_values(folder, capsys):
    np.savez("d.npz", **np.load("d.npz"))
    code, _, err = run(
        capsys, "train", "model.onnx", "--data", "d.npz", "-o", "t.onnx", "--epo", 1, "--quiet"
    )
    assert (code, err) == (0, "")
