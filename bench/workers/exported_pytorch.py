"""A training step of a network of networks.py in PyTorch: eager, or compiled. See protocol.py."""

import json
from pathlib import Path

import torch
from networks import make
from protocol import serve, steps_of_torch


def prepare(folder, threads):
    torch.set_num_threads(threads)
    line = json.loads(Path(folder, "line.json").read_text())
    network, x, y = make(line["name"])
    forward = torch.compile(network) if line["compile"] else network
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
    return steps_of_torch(lambda: forward(x), y.reshape(-1), optimizer)


if __name__ == "__main__":
    serve(prepare)
