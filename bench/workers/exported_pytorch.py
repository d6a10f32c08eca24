"""A training step of a network of networks.py in PyTorch: eager, or compiled. See protocol.py."""

import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from networks import make
from protocol import serve


def prepare(folder, threads):
    torch.set_num_threads(threads)
    line = json.loads(Path(folder, "line.json").read_text())
    network, x, y = make(line["name"])
    forward = torch.compile(network) if line["compile"] else network
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
    y, losses = y.reshape(-1), []

    def step():
        loss = F.cross_entropy(forward(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    return step, lambda: {"loss": np.array(losses[:3])}


if __name__ == "__main__":
    serve(prepare)
