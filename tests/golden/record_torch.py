"""Record what PyTorch computes for tests/train/problems.py: `python tests/golden/record_torch.py`.

Needs PyTorch 2.13. Writes tests/golden/train/*.npz; `make check` compares them with PyTorch anew.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

FOLDER = Path(__file__).resolve().parent / "train"
sys.path.insert(0, str(FOLDER.parents[1]))

from train import problems  # noqa: E402

# ---- the models, from the same weights


def mlp(w, x):
    h = torch.tanh(F.linear(F.relu(F.linear(x, w["w1"], w["b1"])), w["w2"], w["b2"]))
    return F.linear(h, w["w3"], w["b3"])


def cnn(w, x):
    for i in "12":
        x = F.conv2d(x, w[f"conv{i}"], padding=1)
        x = F.relu(F.batch_norm(x, None, None, w[f"scale{i}"], w[f"shift{i}"], training=True))
        x = F.max_pool2d(x, 2) if i == "1" else x.mean((2, 3))
    return F.linear(x, w["w"], w["b"])


def lstm(w, x):
    hidden = w["R"].shape[2]

    def order(t):  # ONNX stacks i o f c, PyTorch i f c o
        i, o, f, c = t.split(hidden)
        return torch.cat([i, f, c, o])

    bias_w, bias_r = w["B"][0].split(4 * hidden)
    flat = [order(w["W"][0]), order(w["R"][0]), order(bias_w), order(bias_r)]
    zero = x.new_zeros(1, x.shape[1], hidden)
    output = torch.lstm(x, (zero, zero), flat, True, 1, 0.0, True, False, False)[0]
    return F.linear(output[-1], w["w"], w["b"])


def transformer(w, x):
    e = F.embedding(x, w["embedding"]) + w["position"]
    n, s, d = e.shape
    q, k, v = ((e @ w[f"w{i}"]).view(n, s, 2, 8).transpose(1, 2) for i in "qkv")
    mixed = ((q @ k.transpose(2, 3) * 8**-0.5).softmax(-1) @ v).transpose(1, 2).reshape(n, s, d)
    h = F.layer_norm(e + mixed @ w["wo"], (d,), w["g1"], w["s1"])
    h = F.layer_norm(
        h + F.relu(h @ w["up"] + w["up_b"]) @ w["down"] + w["down_b"], (d,), w["g2"], w["s2"]
    )
    return (h @ w["out"]).flatten(0, 1)


FORWARD = {"mlp": mlp, "cnn": cnn, "lstm": lstm, "transformer": transformer}


def curves() -> dict[str, np.ndarray]:
    """The loss of every step, in double: both sides are judged by the exact curve."""
    found = {}
    for name, make in problems.PROBLEMS.items():
        problem = make()
        w = {n: torch.tensor(a, dtype=torch.float64) for n, a in problem.weights.items()}
        trained = [t.requires_grad_() for n, t in w.items() if n not in problem.fixed]
        optimizer = torch.optim.AdamW(trained, lr=problem.lr)
        losses = []
        for x, y in problem.batches:
            x = torch.tensor(x)
            x = x.double() if x.is_floating_point() else x
            loss = F.cross_entropy(FORWARD[name](w, x), torch.tensor(y).flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found[name] = np.array(losses)
    return found


# ---- optimizers, schedules, losses


def optimizers() -> dict[str, np.ndarray]:
    """The parameters after 1, 10 and 100 steps, in float and in double."""
    found = {}
    settings = {**{k: (*v, {}) for k, v in problems.OPTIMIZERS.items()}, **problems.CLIPPED}
    for title, (kind, options, clip) in settings.items():
        for dtype in (torch.float32, torch.float64):
            arrays, noise = problems.optimizer_problem()
            p = [torch.tensor(a, dtype=dtype).requires_grad_() for a in arrays]
            optimizer = getattr(torch.optim, kind)(p, **options)
            for step in range(100):
                at = 0
                for t in p:
                    part = torch.tensor(noise[step, at : at + t.numel()]).to(dtype)
                    t.grad = t.detach() + part.reshape(t.shape)
                    at += t.numel()
                if "clip_norm" in clip:
                    torch.nn.utils.clip_grad_norm_(p, clip["clip_norm"])
                if "clip_value" in clip:
                    torch.nn.utils.clip_grad_value_(p, clip["clip_value"])
                optimizer.step()
                if step + 1 in (1, 10, 100):
                    flat = torch.cat([t.detach().flatten() for t in p]).numpy()
                    found[f"{title}/{step + 1}/{flat.dtype}"] = flat
    return found


def schedules() -> dict[str, np.ndarray]:
    """The rate of each of 100 steps, from 0.5."""
    found, module = {}, torch.optim.lr_scheduler
    for title, (kind, options) in problems.SCHEDULES.items():
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.5)
        schedule = getattr(module, kind)(optimizer, **options)
        rates = []
        for _ in range(100):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        found[title] = np.array(rates)
    for title, options in problems.PLATEAUS.items():
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.5)
        schedule = module.ReduceLROnPlateau(optimizer, **options)
        rates = []
        for value in problems.plateau_values():
            rates.append(optimizer.param_groups[0]["lr"])
            schedule.step(value)
        found[title] = np.array(rates)
    return found


def losses() -> dict[str, np.ndarray]:
    """The loss and the gradient of the output, in double."""
    names = {"CrossEntropy": "CrossEntropyLoss", "BinaryCrossEntropy": "BCEWithLogitsLoss",
             "MSE": "MSELoss", "L1": "L1Loss", "Huber": "HuberLoss"}  # fmt: skip
    found = {}
    for title, (kind, options) in problems.LOSSES.items():
        x, y = problems.loss_problem(title)
        x = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        y = torch.tensor(y)
        y = y.double() if y.is_floating_point() else y
        tensors = {
            k: torch.tensor(v, dtype=torch.float64) for k, v in options.items() if "weight" in k
        }
        loss = getattr(torch.nn, names[kind])(**{**options, **tensors})
        judged = (x.flatten(0, 1), y.flatten()) if title == "ce sequence" else (x, y)
        value = loss(*judged)
        value.backward()
        found[f"{title}/loss"], found[f"{title}/gradient"] = value.detach().numpy(), x.grad.numpy()
    return found


TABLES = {"curves": curves, "optimizers": optimizers, "schedules": schedules, "losses": losses}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, record in TABLES.items():
        np.savez_compressed(FOLDER / f"{name}.npz", **record())
        print(f"wrote {FOLDER / name}.npz")
