"""Damaged checkpoints: each is refused whole, and the one before it is taken; other data is noticed."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from onnxgrad import Trainer
from onnxgrad.data.digest import digest
from onnxgrad.errors import CheckpointError
from onnxgrad.train.callbacks import Checkpoint

X = np.random.default_rng(0).standard_normal((32, 3)).astype(np.float32)
Y = X.sum(1, keepdims=True)


def trainer() -> Trainer:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 3] x) => (float[N, 1] y) <float[3, 1] w = {0, 0, 0}> { y = MatMul(x, w) }""")
    return Trainer(model, loss="mse", lr=0.1)


def state_of(own: Trainer) -> tuple:
    return own.get_weights(flat=True).tolist(), own.steps


@pytest.fixture
def folder(tmp_path):
    """A folder with the checkpoints of three epochs."""
    trainer().fit(X, Y, epochs=3, batch_size=8, callbacks=[Checkpoint(tmp_path / "c")])
    return tmp_path / "c"


@pytest.mark.parametrize(
    "key", ["step", "batches", "seed", "optimizer", "progress", "callbacks", "files"]
)
@pytest.mark.parametrize("value", [None, "x", -1, [], {"a": 1}, 1e308], ids=str)
def test_a_state_with_other_values_is_refused(key, value, folder):
    newest = sorted(folder.glob("step-*"))[-1]
    path = newest / "trainer_state.json"
    state = json.loads(path.read_text())
    state[key] = value
    path.write_text(json.dumps(state))
    own = trainer()
    before = state_of(own)
    with pytest.raises(CheckpointError, match=r"trainer_state\.json is damaged"):
        own.load_checkpoint(newest)
    assert state_of(own) == before


def test_a_damaged_newest_falls_back_to_the_one_before(folder):
    names = sorted(folder.glob("step-*"))
    (names[-1] / "trainer_state.json").write_text("{")
    own = trainer()
    own.load_checkpoint(folder)
    assert own.steps == int(names[-2].name.removeprefix("step-"))


def test_other_data_of_the_same_shape_is_noticed(folder):
    own = trainer()
    other = Y.copy()
    other[7] += 1
    with pytest.raises(CheckpointError, match="other rows of the same shape"):
        own.fit(X, other, epochs=4, batch_size=8, resume=folder)
    assert own.steps == 0
    own.fit(X, Y, epochs=4, batch_size=8, resume=folder)
    assert own.steps == 16


def test_a_digest_sees_every_change():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 3)).astype(np.float32)
    first = digest([{"x": x}])
    assert digest([{"x": x.copy()}]) == first
    for change in ({"z": x}, {"x": x.astype(np.float64)}, {"x": x.reshape(3, 4)}, {"x": x[::-1]}):
        assert digest([change]) != first
