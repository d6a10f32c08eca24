"""PyTorch's fused AdamW alone, on one tensor; see protocol.py."""

import json
from pathlib import Path

import numpy as np
import torch
from protocol import serve


def prepare(folder, threads):
    torch.set_num_threads(threads)
    count = json.loads(Path(folder, "line.json").read_text())["parameters"]
    p = torch.zeros(count, requires_grad=True)
    p.grad = torch.from_numpy(np.random.default_rng(0).standard_normal(count, np.float32))
    optimizer = torch.optim.AdamW([p], lr=1e-3, weight_decay=0.01, fused=True)
    return optimizer.step, lambda: {"p": p.detach().numpy()[:1000]}


if __name__ == "__main__":
    serve(prepare)
