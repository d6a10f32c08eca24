"""The checkpoint file: what goes in comes out, of every type and size."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from dropin.goldens import flat

from onnxgrad.dropin.old import checkpoint
from onnxgrad.dropin.old.checkpoint import Checkpoint, OptimizerGroup
from onnxgrad.errors import DropInError

ARRAYS = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "scalar": np.array(2.5, np.float32),
    "empty": np.zeros((0, 3), np.float32),
    "double": np.linspace(0, 1, 7),
    "half": np.arange(5, dtype=np.float16),
    "whole": np.arange(-3, 3),
    "ünï·code": np.ones(1, np.float32),
}


def example() -> Checkpoint:
    moments = {"matrix": {"momentum0": ARRAYS["matrix"] + 1, "momentum1": ARRAYS["matrix"] * 2}}
    return Checkpoint(
        ARRAYS, {"frozen": np.array([True, False])}, optimizer=OptimizerGroup(1 << 40, 0.5, moments),
        properties={"a": 1, "b": 2.5, "c": "text", "zero": 0, "nothing": 0.0, "": ""},
    )  # fmt: skip


def test_what_goes_in_comes_out(tmp_path):
    checkpoint.write(example(), tmp_path / "c")
    assert flat(checkpoint.read(tmp_path / "c")) == flat(example())
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_large_ones_have_a_data_file(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "EXTERNAL_ABOVE", 16)
    checkpoint.write(example(), tmp_path / "c")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c", "c.data"]
    assert flat(checkpoint.read(tmp_path / "c")) == flat(example())
    (tmp_path / "c.data").write_bytes(b"short")
    with pytest.raises(DropInError, match=r"tensor 'matrix' .* has 5 bytes, expected 24"):
        checkpoint.read(tmp_path / "c")
    (tmp_path / "c.data").unlink()
    with pytest.raises(DropInError, match=r"c.data cannot be read.*must lie beside it"):
        checkpoint.read(tmp_path / "c")


def test_tensors_that_share_the_bytes_of_the_data_file_are_refused(tmp_path, monkeypatch):
    """A small file could otherwise ask for any amount of memory."""
    monkeypatch.setattr(checkpoint, "EXTERNAL_ABOVE", 16)
    size = 12_360  # bytes of each
    arrays = {name: np.ones(size // 8) for name in "abc"}
    checkpoint.write(Checkpoint(arrays, {}), tmp_path / "c")
    file = (tmp_path / "c").read_bytes()
    for offset in (size, 2 * size):
        assert file.count(struct.pack("<q", offset)) == 1
        file = file.replace(struct.pack("<q", offset), bytes(8))
    (tmp_path / "c").write_bytes(file)
    (tmp_path / "c.data").write_bytes(bytes(size))
    with pytest.raises(DropInError, match="share bytes with each other"):
        checkpoint.read(tmp_path / "c")


def test_a_nominal_one_has_names_only(tmp_path):
    checkpoint.write(Checkpoint(ARRAYS, {}, nominal=True), tmp_path / "c")
    found = checkpoint.read(tmp_path / "c")
    assert found.nominal
    assert list(found.trainable) == list(ARRAYS)
    assert all(a.size == 0 for a in found.trainable.values())
    assert all(found.trainable[n].dtype == a.dtype for n, a in ARRAYS.items())


def test_a_newer_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "VERSION", 3)
    checkpoint.write(example(), tmp_path / "c")
    monkeypatch.undo()
    with pytest.raises(DropInError, match="has version 3, expected at most 2"):
        checkpoint.read(tmp_path / "c")
