"""The networks of tests/model/networks.py exported anew by the PyTorch at hand, other weights and data."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.live
torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytest.importorskip("transformers")

from golden import record_networks  # noqa: E402
from model import curves  # noqa: E402
from model.networks import NETWORKS  # noqa: E402


@pytest.mark.parametrize("exporter", record_networks.EXPORTERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_new_network_trains_as_in_pytorch(name, exporter):
    network = NETWORKS[name]
    module, data = record_networks.made(network, seed=7)
    model = record_networks.exported(module, data, exporter, network.dynamic)
    like = record_networks.reference(module, model)
    for optimizer in curves.OPTIMIZERS:
        expected = record_networks.curve(like, optimizer, data, network.axis)
        losses = curves.trained(model, optimizer, data, network.axis)
        np.testing.assert_allclose(losses, expected, rtol=1e-3, err_msg=optimizer)
