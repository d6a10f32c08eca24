"""Where files are written: never through a link, onto a device, over the data or a stranger's file."""

from __future__ import annotations

import os
import stat

import numpy as np
import onnx
import pytest
from train import problems

from onnxgrad import Trainer
from onnxgrad.errors import ExportError, FileError
from onnxgrad.files import write


def tree(folder) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_link_is_replaced_and_its_target_stays(tmp_path):
    (tmp_path / "precious").write_bytes(b"old")
    (tmp_path / "out").symlink_to(tmp_path / "precious")
    write.write_bytes(tmp_path / "out", b"new")
    assert tree(tmp_path) == {"precious": b"old", "out": b"new"}
    assert not (tmp_path / "out").is_symlink()


def device(path):
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))


@pytest.mark.parametrize(
    ("make", "word"), [(device, "a device"), (os.mkfifo, "a pipe")], ids=["device", "pipe"]
)
def test_devices_and_pipes_are_left_alone(make, word, tmp_path):
    try:
        make(tmp_path / "out.onnx")
    except PermissionError:
        pytest.skip("only root makes devices")
    before = os.stat(tmp_path / "out.onnx")
    with pytest.raises(FileError, match=f"is {word}, expected the name of a file to write"):
        write.write_bytes(tmp_path / "out.onnx", b"new")
    trainer = Trainer(problems.cnn().model(), loss="cross_entropy")
    with pytest.raises(ExportError, match=f"is {word}"):
        trainer.save(tmp_path / "out.onnx")
    assert os.stat(tmp_path / "out.onnx").st_ino == before.st_ino
    assert os.listdir(tmp_path) == ["out.onnx"]


@pytest.mark.parametrize("mask", [0o077, 0o022, 0o027], ids=oct)
def test_the_umask_counts(mask, tmp_path):
    old = os.umask(mask)
    try:
        write.write_bytes(tmp_path / "file", b"text")
        trainer = Trainer(problems.cnn().model(), loss="cross_entropy")
        trainer.save(tmp_path / "m.onnx")
        trainer.save_checkpoint(tmp_path / "checkpoint")
    finally:
        os.umask(old)
    for path in (p for p in tmp_path.rglob("*") if p.is_file()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask, path


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        write.write_bytes(tmp_path / "file", b"new")
    assert tree(tmp_path) == {"file": b"old"}


def external(path, location) -> None:
    """A small model whose weights lie in `location`, whatever that is; the file is written if it can be."""
    made = problems.cnn().model()
    onnx.save(made, path, save_as_external_data=True, location="tmp.data", size_threshold=0)
    proto = onnx.load(path, load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    path.write_bytes(proto.SerializeToString())
    os.replace(path.parent / "tmp.data", path.parent / location)


def stepped(path) -> Trainer:
    trainer = Trainer(path, loss="cross_entropy", lr=1e-2)
    trainer.step(*problems.cnn().batches[0])
    return trainer


def test_the_data_of_the_source_is_kept_where_the_target_names_it_too(tmp_path):
    """net.onnx is an older copy of resnet.onnx, and both name resnet.onnx.data."""
    external(tmp_path / "resnet.onnx", "resnet.onnx.data")
    (tmp_path / "net.onnx").write_bytes((tmp_path / "resnet.onnx").read_bytes())
    before = tree(tmp_path)
    trainer = stepped(tmp_path / "resnet.onnx")
    trainer.save(tmp_path / "net.onnx")
    after = tree(tmp_path)
    assert {n: after[n] for n in before if n != "net.onnx"} == {
        n: before[n] for n in before if n != "net.onnx"
    }
    assert set(after) - set(before) == {"net.onnx.data"}


@pytest.mark.parametrize("location", ["../net.precious", "sub/net.precious", "net.onnx.bak"])
def test_a_hostile_model_at_the_target_deletes_nothing(location, tmp_path):
    folder = tmp_path / "out"
    (folder / "sub").mkdir(parents=True)
    external(folder / "net.onnx", location)
    before = tree(tmp_path)
    trainer = stepped(problems.cnn().model())
    trainer.save(folder / "net.onnx")
    after = tree(tmp_path)
    assert set(after) == set(before)
    assert {n for n in after if after[n] != before[n]} == {"out/net.onnx"}


def test_only_what_this_process_wrote_is_removed(tmp_path):
    external(tmp_path / "m.onnx", "m.onnx.data")
    trainer = stepped(tmp_path / "m.onnx")
    for _ in range(3):
        trainer.save(tmp_path / "tuned.onnx")
        trainer.step(*problems.cnn().batches[1])
    assert len(tree(tmp_path)) == 4  # two models, two files of weights
    assert not [n for n in trainer.notes if n.kind == "left"]
    left = tmp_path / "other.onnx.data"
    external(tmp_path / "other.onnx", "other.onnx.data")
    trainer.save(tmp_path / "other.onnx")
    assert left.exists()
    assert any("other.onnx.data beside other.onnx" in str(note) for note in trainer.notes)


def test_exported_data_never_leaves_the_folder_of_the_model(tmp_path):
    """The source keeps its weights in sub/, and beside the target sub is a link to elsewhere."""
    (tmp_path / "a" / "sub").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    external(tmp_path / "a" / "m.onnx", "sub/w.data")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "sub").symlink_to(tmp_path / "elsewhere")
    trainer = stepped(tmp_path / "a" / "m.onnx")
    trainer.save(tmp_path / "b" / "m.onnx")
    assert os.listdir(tmp_path / "elsewhere") == []
    assert sorted(os.listdir(tmp_path / "b")) == ["m.onnx", "m.onnx.data", "sub"]
    assert np.isfinite(
        Trainer(tmp_path / "b" / "m.onnx", loss="cross_entropy").get_weights(flat=True)
    ).all()
