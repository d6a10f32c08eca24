"""--resume of a run folder that somebody else wrote: it may not choose any file as the output."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxgrad.cli import main

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[N, 3] x) => (float[N, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { y = MatMul(x, w) }"""


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    """A run of one epoch in the folder `here/run`, to be continued for one more."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    onnx.save(onnx.parser.parse_model(MODEL), "m.onnx")
    x = np.random.default_rng(0).standard_normal((12, 3)).astype(np.float32)
    np.savez("d.npz", x=x, y=x[:, :2])
    command = ["train", "m.onnx", "--data", "d.npz", "--loss", "mse", "--epochs", "1", "--quiet"]
    assert main([*command, "--run-dir", "run", "-o", "first.onnx"]) == 0
    return here / "run"


def name_output(run: Path, output: str) -> None:
    saved = json.loads((run / "args.json").read_text())
    (run / "args.json").write_text(json.dumps({**saved, "output": output, "epochs": 2}))


@pytest.mark.parametrize(
    "output", ["../rc", "../other.onnx", "sub/../../other.onnx", ".rc", "rc", ".onnx"]
)
def test_a_run_folder_does_not_choose_any_file(run, capsys, output):
    kept = Path(output)
    if "sub" not in output:
        kept.write_text("mine")
    name_output(run, output)
    assert main(["train", "--resume", "run", "--quiet"]) == 2
    said = capsys.readouterr().err
    assert "run/args.json names the output" in said
    assert f"onnxgrad train --resume run -o {output}" in said
    assert kept.read_text() == "mine" if "sub" not in output else not Path("../other.onnx").exists()


def test_a_link_in_the_folder_that_leads_out_counts_as_outside(run, tmp_path, capsys):
    Path("away").symlink_to(tmp_path)
    name_output(run, "away/other.onnx")
    assert main(["train", "--resume", "run", "--quiet"]) == 2
    assert not (tmp_path / "other.onnx").exists()


@pytest.mark.parametrize("output", ["second.onnx", "sub/second.onnx", "run/second.onnx"])
def test_an_output_of_this_folder_is_taken(run, output):
    name_output(run, output)
    assert main(["train", "--resume", "run", "--quiet"]) == 0
    assert onnx.load(output).graph.node[0].op_type == "MatMul"


def test_who_names_the_output_decides(run):
    name_output(run, "../other.onnx")
    assert main(["train", "--resume", "run", "-o", "../other.onnx", "--quiet"]) == 0
    assert Path("../other.onnx").exists()


def test_the_way_on_repeats_an_output_that_the_folder_alone_could_not_name(run):
    from onnxgrad.job.config import Config
    from onnxgrad.job.folder import resume_line

    inside, outside = (Config(data="d.npz", output=o) for o in ("a.onnx", "../a b.onnx"))
    assert resume_line(run, inside) == f"onnxgrad train --resume {run}"
    assert resume_line(run, outside) == f"onnxgrad train --resume {run} -o '../a b.onnx'"
    pushed = Config(data="d.npz", output="a.onnx", push="org/repo")
    assert resume_line(run, pushed) == f"onnxgrad train --resume {run} --push org/repo"


def test_a_run_folder_does_not_upload(run, capsys, monkeypatch):
    """A person who wants the upload says so beside --resume, as the line to continue does."""
    uploaded = []
    monkeypatch.setattr("onnxgrad.files.hub.check_push", lambda repository: None)
    monkeypatch.setattr("onnxgrad.job.card.upload", lambda result: uploaded.append(result) or "")
    saved = json.loads((run / "args.json").read_text())
    (run / "args.json").write_text(json.dumps({**saved, "push": "org/other", "epochs": 2}))
    assert main(["train", "--resume", "run", "--quiet"]) == 2
    said = capsys.readouterr().err
    assert "run/args.json would upload the model to org/other" in said
    assert "onnxgrad train --resume run --push org/other" in said
    assert not uploaded
    assert main(["train", "--resume", "run", "--quiet", "--push", ""]) == 0
    assert not uploaded
    (run / "args.json").write_text(json.dumps({**saved, "push": "org/other", "epochs": 3}))
    assert main(["train", "--resume", "run", "--quiet", "--push", "org/other"]) == 0
    assert len(uploaded) == 1
