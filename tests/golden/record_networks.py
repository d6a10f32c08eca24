"""Record what PyTorch makes of tests/model/networks.py: `python tests/golden/record_networks.py`.

For each network the files of both exporters, as they come, and PyTorch's own loss curves in double.
Needs PyTorch 2.13, onnxscript and transformers; `make check` compares anew with what is installed.
"""

from __future__ import annotations

import copy
import io
import logging
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F

FOLDER = Path(__file__).resolve().parent / "networks"
sys.path.insert(0, str(FOLDER.parents[1]))

from model import curves  # noqa: E402
from model.networks import NETWORKS, Network, folded  # noqa: E402

EXPORTERS = ("torchscript", "dynamo")
_NORM = torch.nn.modules.batchnorm._BatchNorm
_INSTANCE = torch.nn.modules.instancenorm._InstanceNorm
_OPTIMIZERS = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}


def made(network: Network, seed: int = 0) -> tuple[torch.nn.Module, list]:
    """Return a new network and its batches."""
    torch.manual_seed(seed)
    data = curves.batches(network.inputs, network.classes, network.target, seed + 1)
    return network.make().eval(), data


def exported(module: torch.nn.Module, data: list, exporter: str, dynamic: bool = False) -> bytes:
    """Return the file that an exporter writes with its defaults; `dynamic` leaves the size of the batch open."""
    file = io.BytesIO()
    arguments = tuple(torch.tensor(a) for a in data[0][0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"dynamo": True, "verbose": False} if exporter == "dynamo" else {"dynamo": False}
        torch.onnx.export(
            module, arguments, file, **settings, **(_open(exporter, data) if dynamic else {})
        )
    return file.getvalue()


def _open(exporter: str, data: list) -> dict:
    """Return the settings of an exporter that leave the first size of every input open."""
    inputs = range(len(data[0][0]))
    if exporter == "dynamo":
        return {"dynamic_shapes": tuple({0: torch.export.Dim.DYNAMIC} for _ in inputs)}
    names = [f"input{number}" for number in inputs]
    return {"input_names": names, "dynamic_axes": {name: {0: "batch"} for name in names}}


def reference(module: torch.nn.Module, model: bytes) -> torch.nn.Module:
    """Return the network that a file holds: with the batch normalisations folded that it lacks."""
    left = sum(n.op_type == "BatchNormalization" for n in onnx.load_from_string(model).graph.node)
    whole = sum(isinstance(m, _NORM) and not isinstance(m, _INSTANCE) for m in module.modules())
    found = copy.deepcopy(module)
    return found if left >= whole else folded(found)  # a module that is called twice has two nodes


def curve(module: torch.nn.Module, optimizer: str, data: list, axis: int) -> np.ndarray:
    """Return PyTorch's losses in double."""
    module = copy.deepcopy(module).double().train()
    update = _OPTIMIZERS[optimizer](module.parameters(), **curves.OPTIMIZERS[optimizer])
    losses = []
    for step in range(curves.STEPS):
        arrays, labels = data[step % curves.BATCHES]
        inputs = [torch.tensor(a) for a in arrays]
        inputs = [x.double() if x.is_floating_point() else x for x in inputs]
        loss = F.cross_entropy(module(*inputs).movedim(axis, 1), torch.tensor(labels))
        update.zero_grad()
        loss.backward()
        update.step()
        losses.append(loss.item())
    return np.array(losses)


def record(name: str) -> dict[str, np.ndarray]:
    """Return what a file of goldens holds for one network."""
    network = NETWORKS[name]
    module, data = made(network)
    found = {"axis": np.array(network.axis)}
    for exporter in EXPORTERS:
        model = exported(module, data, exporter, network.dynamic)
        found[exporter] = np.frombuffer(model, np.uint8)
        like = reference(module, model)
        for optimizer in _OPTIMIZERS:
            found[f"{exporter}/{optimizer}"] = curve(like, optimizer, data, network.axis)
    for number, (arrays, labels) in enumerate(data):
        found.update({f"x/{number}/{i}": a for i, a in enumerate(arrays)})
        found[f"y/{number}"] = labels
    return found


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or NETWORKS:
        np.savez_compressed(FOLDER / f"{name}.npz", **record(name))
        print(name)
