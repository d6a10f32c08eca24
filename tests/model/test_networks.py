"""New networks through both exporters of PyTorch, as they come: the loss curves are PyTorch's own.

The files and curves in tests/golden/networks were recorded by tests/golden/record_networks.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from model import curves

from onnxgrad import Trainer
from onnxgrad.model.trainable import TrainableModel
from onnxgrad.train.losses import CrossEntropy

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "networks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.npz"))


def batches(golden) -> list[tuple[list[np.ndarray], np.ndarray]]:
    inputs = sum(name.startswith("x/0/") for name in golden.files)
    return [
        ([golden[f"x/{n}/{i}"] for i in range(inputs)], golden[f"y/{n}"])
        for n in range(curves.BATCHES)
    ]


def test_twelve_networks_and_more_are_recorded():
    assert len(NAMES) >= 12


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
@pytest.mark.parametrize("name", NAMES)
def test_a_new_network_trains_as_in_pytorch(name, exporter):
    with np.load(FOLDER / f"{name}.npz") as golden:
        model, axis, data = golden[exporter].tobytes(), int(golden["axis"]), batches(golden)
        for optimizer in curves.OPTIMIZERS:
            expected = golden[f"{exporter}/{optimizer}"]
            losses = curves.trained(model, optimizer, data, axis)
            np.testing.assert_allclose(losses, expected, rtol=1e-4, err_msg=optimizer)


def test_a_first_state_that_an_exporter_expanded_is_trained_as_one_row():
    with np.load(FOLDER / "first_state.npz") as golden:
        trainer = Trainer(golden["dynamo"].tobytes(), loss="cross_entropy")
    shapes = [w.shape for w in trainer.get_weights().values()]
    assert shapes.count((2, 1, 6)) == 2


MERGED = (
    "decoder",
    "gated",
    "zero_rnn",
    "temperature",
    "seeds",
    "instances",
    "masked_words",
    "relative",
)


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
@pytest.mark.parametrize("name", MERGED)
def test_what_was_separated_is_in_the_file(name, exporter, tmp_path):
    """A session of onnxruntime computes what the trainer does, and a second training finds nothing to separate."""
    with np.load(FOLDER / f"{name}.npz") as golden:
        data, axis = batches(golden), int(golden["axis"])
        trainer = Trainer(golden[exporter].tobytes(), loss=CrossEntropy(axis=axis), lr=0.01)
    for arrays, labels in data:
        batch = dict(zip(trainer.input_names, arrays, strict=True))
        trainer.step({**batch, trainer.target_names[0]: labels})
    trainer.save(tmp_path / "tuned.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "tuned.onnx")
    np.testing.assert_allclose(session.run(None, batch)[0], trainer.predict(batch), atol=1e-5)
    again = TrainableModel(tmp_path / "tuned.onnx")
    tensors = again.tensors()
    assert not [n for n in again.notes(tensors) if n.kind in ("untied", "restored")]
    before = [t for t in trainer.get_weights() if "running" not in t]
    assert sum(t.size for t in tensors if t.trained) == sum(
        trainer.get_weights()[n].size for n in before
    )
