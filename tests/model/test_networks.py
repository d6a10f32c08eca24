"""New networks through both exporters of PyTorch, as they come: the loss curves are PyTorch's own.

The files and curves in tests/golden/networks were recorded by tests/golden/record_networks.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from model import curves

from onnxgrad import Trainer

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
            np.testing.assert_allclose(losses, expected, rtol=1e-3, err_msg=optimizer)


def test_a_first_state_that_an_exporter_expanded_is_trained_as_one_row():
    with np.load(FOLDER / "first_state.npz") as golden:
        trainer = Trainer(golden["dynamo"].tobytes(), loss="cross_entropy")
    shapes = [w.shape for w in trainer.get_weights().values()]
    assert shapes.count((2, 1, 6)) == 2
