"""`onnxgrad artifacts` and `onnxgrad convert-checkpoint`."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnxruntime
import pytest
from dropin.goldens import GOLDEN
from dropin.helpers import LABELS, NAMES, Files, X, arrays_of, classifier, make

from onnxgrad.cli import main
from onnxgrad.dropin.old import checkpoint


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(classifier(), path)
    return path


def run(capsys, *arguments: object) -> tuple[int, str]:
    code = main([str(a) for a in arguments])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_artifacts_of_a_model_train(capsys, model, tmp_path):
    folder = tmp_path / "made"
    code, text = run(capsys, "artifacts", model, "--loss", "ce", "--optim", "sgd", "-o", folder)
    assert code == 0
    assert "4 parameters are trained, 0 are frozen" in text
    files = Files(folder)
    module = files.module()
    optimizer = files.optimizer(module)
    first = module(X, LABELS)
    optimizer.set_learning_rate(0.1)
    optimizer.step()
    assert module(X, LABELS) < first


def test_statistics_are_frozen_and_names_can_be_chosen(capsys, tmp_path):
    net = GOLDEN / "cnn" / "model.onnx"
    code, text = run(capsys, "artifacts", net, "--loss", "ce", "--train", "head", "--freeze", "conv1.weight",
                     "--prefix", "a_", "--nominal", "-o", tmp_path)  # fmt: skip
    assert code == 0
    assert "2 parameters are trained, 5 are frozen" in text
    found = checkpoint.read(tmp_path / "a_checkpoint")
    assert sorted(found.trainable) == ["fc.bias", "fc.weight"]
    assert "conv1.bn.running_mean" in found.frozen
    assert checkpoint.read(tmp_path / "a_nominal_checkpoint").nominal


def test_mistakes_are_a_sentence(capsys, model, tmp_path):
    for arguments, text in (
        (["artifacts", model, "--train", "zzz", "-o", tmp_path], "zzz"),
        (["artifacts", tmp_path / "no.onnx", "-o", tmp_path], "no.onnx"),
        (
            ["artifacts", model, "--loss", "ce", "--outputs", "zzz", "-o", tmp_path],
            "name zzz is not",
        ),
        (["convert-checkpoint", tmp_path / "no", "-o", tmp_path / "x"], "no does not exist"),
        (
            ["convert-checkpoint", tmp_path, "-o", tmp_path / "x"],
            "is not a checkpoint: the folder has no model.safetensors",
        ),
        (["convert-checkpoint", model, "-o", tmp_path / "x.onnx"], "name the model with --model"),
    ):
        code, printed = run(capsys, *arguments)
        assert code == 2
        assert text in printed


@pytest.mark.parametrize("ending", [".safetensors", ".npz", ".onnx"])
def test_there_and_back(capsys, model, tmp_path, ending):
    files = make(tmp_path, requires_grad=NAMES[:2], frozen_params=NAMES[2:])
    old, other, again = tmp_path / "checkpoint", tmp_path / f"other{ending}", tmp_path / "again"
    code, text = run(capsys, "convert-checkpoint", old, "-o", other, "--model", model)
    assert code == 0
    assert "2 trained and 2 frozen parameters" in text
    assert run(capsys, "convert-checkpoint", other, "--like", old, "-o", again)[0] == 0
    assert again.read_bytes() == old.read_bytes()
    assert files.module(files.state("again"))


def test_an_onnx_file_gets_the_numbers(capsys, model, tmp_path):
    make(tmp_path)
    found = checkpoint.read(tmp_path / "checkpoint")
    found.trainable["fc1.bias"] += 1
    checkpoint.write(found, tmp_path / "changed")
    out = tmp_path / "out.onnx"
    assert (
        run(capsys, "convert-checkpoint", tmp_path / "changed", "--model", model, "-o", out)[0] == 0
    )
    new, old = arrays_of(onnx.load(out)), arrays_of(classifier())
    np.testing.assert_array_equal(new["fc1.bias"], old["fc1.bias"] + 1)
    np.testing.assert_array_equal(new["fc2.bias"], old["fc2.bias"])


def test_the_program_of_the_page_runs(tmp_path, monkeypatch):
    page = (GOLDEN.parents[2] / "docs" / "migrating.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.S)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "artifacts").mkdir()
    onnx.save(classifier(), "model.onnx")
    np.save("x.npy", X)
    np.save("labels.npy", LABELS)
    names: dict = {}
    exec(program, names)
    assert names["loss"] < 1.0
    session = onnxruntime.InferenceSession("tuned.onnx")
    assert (session.run(None, {"input": X})[0].argmax(1) == LABELS).mean() > 0.6
