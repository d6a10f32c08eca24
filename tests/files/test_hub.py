"""Models of the Hugging Face hub: from a cache made by hand, offline; cards; uploads to a hub that writes them down."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from job.problem import LABEL, X, run

pytest.importorskip("huggingface_hub", reason="needs huggingface_hub: pip install 'onnxgrad[hub]'")

import onnxgrad
from onnxgrad.errors import FileError, MissingFileError
from onnxgrad.files import hub
from onnxgrad.sklearn import mlp

COMMIT = "a" * 40
MODEL = "hf://org/repo/onnx/model.onnx"


def put(root: Path, name: str, content: bytes, commit: str = COMMIT) -> None:
    """A file as huggingface_hub keeps it: a link into a folder of blobs."""
    blob = root / "blobs" / hashlib.sha256(content).hexdigest()
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    link = root / "snapshots" / commit / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(blob, link.parent))


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """A model with external weights, its config, and data for it; the network is switched off."""
    import huggingface_hub.constants as constants

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "cache" / "models--org--repo"
    made = tmp_path / "made"
    made.mkdir()
    more = dict(save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    onnx.save(mlp(4, 3), made / "model.onnx", **more)
    for name in ("model.onnx", "model.onnx_data"):
        put(root, f"onnx/{name}", (made / name).read_bytes())
        (made / name).unlink()
    put(root, "config.json", b'{"model_type": "mlp"}')
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(COMMIT)
    np.savez("d.npz", x=X, label=np.array(["ant", "bee", "<b>cat"])[LABEL])
    return root


def test_every_command_takes_an_address(cache, capsys):
    for arguments in (
        ("inspect", MODEL),
        ("eval", MODEL, "--data", "d.npz"),
        ("predict", MODEL, "--data", "d.npz", "-o", "p.csv"),
        ("lr-find", MODEL, "--data", "d.npz", "--steps", 12),
        ("grad", MODEL, "-o", "g.onnx"),
        ("step", "hf://org/repo@main/onnx/model.onnx", "-o", "s.onnx", "--loss", "cross_entropy"),
        ("check", MODEL.replace("repo/", f"repo@{COMMIT}/")),
    ):
        code, _, err = run(capsys, *arguments)
        assert (code, err) == (0, ""), arguments


def train(capsys, *more: object) -> tuple[int, str, str]:
    return run(capsys, "train", MODEL, "--data", "d.npz", "-o", "t.onnx", *more)


def test_training_keeps_the_address_and_writes_a_card(cache, capsys):
    code, _, err = train(capsys, "--epochs", 2, "--lr", 0.05, "--quiet")
    assert (code, err) == (0, "")
    assert json.loads(Path("runs/model-1/args.json").read_text())["model"] == MODEL
    text = Path("runs/model-1/README.md").read_text()
    _, head, body = text.split("---\n", 2)
    front = yaml.safe_load(head)
    assert front["base_model"] == "org/repo"
    assert front["base_model_relation"] == "finetune"
    scores = {m["type"]: m["value"] for m in front["model-index"][0]["results"][0]["metrics"]}
    after = json.loads(Path("runs/model-1/result.json").read_text())["after"]
    assert scores == pytest.approx(after, abs=1e-5)
    assert f"onnxgrad train {MODEL} --data d.npz -o t.onnx --lr 0.05 --epochs 2" in body
    assert "Classes: &lt;b>cat, ant, bee." in body
    assert onnx.load("t.onnx").graph.node  # with its own external data beside it, or none


def test_a_trainer_takes_an_address(cache):
    trainer = onnxgrad.Trainer(MODEL, loss="cross_entropy")
    assert np.isfinite(trainer.step(X, LABEL)["loss"])
    trainer.save_checkpoint("c")
    again = onnxgrad.Trainer.from_checkpoint("c")
    np.testing.assert_array_equal(again.predict(X), trainer.predict(X))


def test_an_interrupted_run_goes_on_by_its_address(cache, capsys):
    arguments = ("train", MODEL, "--data", "d.npz", "-o", "t.onnx", "--quiet")
    assert run(capsys, *arguments, "--epochs", 1)[0] == 0
    code, _, err = run(capsys, "train", "--resume", "runs/model-1", "--epochs", 2, "--quiet")
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (
            "hf://org/model.onnx",
            "is not an address of a model, expected hf://org/repo/onnx/model.onnx",
        ),
        ("hf://org/repo/../../etc/passwd", "is not an address of a model"),
        ("hf://org/repo/other.onnx", "hf://org/repo/other.onnx: it is not in the cache"),
        (
            "hf://org/repo@v9/onnx/model.onnx",
            "hf://org/repo@v9/onnx/model.onnx: it is not in the cache",
        ),
    ],
)
def test_what_is_not_there_is_named(cache, capsys, address, text):
    code, _, err = run(capsys, "inspect", address)
    assert code == 2
    assert text in err


def test_external_data_that_leads_out_is_refused(cache, tmp_path):
    model = mlp(4, 3)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "../../../secret"), ("offset", "0"), ("length", "512")):
        tensor.external_data.add(key=key, value=value)
    put(cache, "onnx/bad.onnx", model.SerializeToString())
    with pytest.raises(FileError, match="leads out of its folder"):
        hub.local("hf://org/repo/onnx/bad.onnx")


def test_without_the_package_the_line_to_install_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(FileError, match=r"pip install 'onnxgrad\[hub\]'"):
        hub.local(MODEL)


# ---- uploads


class Hub:
    """Writes down what would be uploaded."""

    def __init__(self, fails: bool = False):
        self.repositories, self.files, self.fails = {}, {}, fails

    def create_repo(self, repo_id, *, private, exist_ok):
        if self.fails:
            raise RuntimeError("403 Forbidden: no right to write")
        self.repositories[repo_id] = private

    def upload_file(self, *, path_or_fileobj, path_in_repo, repo_id, commit_message):
        source = path_or_fileobj
        content = source if isinstance(source, bytes) else Path(source).read_bytes()
        self.files[path_in_repo] = content


def test_a_push_uploads_model_classes_and_card(cache, capsys, monkeypatch):
    pretended = Hub()
    monkeypatch.setattr(hub, "api", lambda: pretended)
    code, out, err = train(capsys, "--epochs", 1, "--push", "me/tuned")
    assert (code, err) == (0, "")
    assert "pushed  https://huggingface.co/me/tuned" in out
    assert pretended.repositories == {"me/tuned": True}
    names = list(pretended.files)
    assert names[-1] == "README.md"
    assert "onnx/t.onnx" in names
    assert pretended.files["onnx/t.onnx"] == Path("t.onnx").read_bytes()
    config = json.loads(pretended.files["config.json"])
    assert config["model_type"] == "mlp"
    assert config["id2label"] == {"0": "<b>cat", "1": "ant", "2": "bee"}
    assert pretended.files["README.md"] == Path("runs/model-1/README.md").read_bytes()


def test_a_push_that_fails_leaves_the_model(cache, capsys, monkeypatch):
    monkeypatch.setattr(hub, "api", lambda: Hub(fails=True))
    arguments = ("train", MODEL, "--data", "d.npz", "-o", "t.onnx", "--epochs", 1, "--quiet")
    code, _, err = run(capsys, *arguments, "--push", "me/tuned")
    assert code == 2
    assert "the upload to me/tuned failed: 403 Forbidden: no right to write" in err
    assert Path("t.onnx").exists()


def test_a_wrong_repository_is_refused_before_training(cache, capsys):
    code, _, err = run(capsys, "train", MODEL, "--data", "d.npz", "-o", "t.onnx", "--push", "me")
    assert code == 2
    assert "--push 'me' is not a repository, expected org/repo" in err
    assert not Path("runs").exists()


def test_nothing_is_uploaded_unless_asked_for(cache, capsys, monkeypatch):
    monkeypatch.setattr(hub, "api", lambda: pytest.fail("asked for the hub"))
    assert (
        run(capsys, "train", MODEL, "--data", "d.npz", "-o", "t.onnx", "--epochs", 1, "--quiet")[0]
        == 0
    )


def test_offline_files_are_missing_files(cache):
    with pytest.raises(MissingFileError):
        hub.local("hf://other/repo/model.onnx")
