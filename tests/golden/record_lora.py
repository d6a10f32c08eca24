"""Record the loss curves of peft for tests/model/lora_problems.py: `python tests/golden/record_lora.py`.

Needs PyTorch 2.13 and peft 0.21. Writes tests/golden/lora/curves.npz; `make check` compares it with peft anew.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import peft
import torch
import torch.nn.functional as F
from torch import nn

FOLDER = Path(__file__).resolve().parent / "lora"
sys.path.insert(0, str(FOLDER.parents[1]))

from model import lora_problems as problems  # noqa: E402

from onnxgrad.graph import load  # noqa: E402
from onnxgrad.model.lora import Lora, adapter  # noqa: E402
from onnxgrad.model.lora.peft import tensors_of  # noqa: E402

D, HEADS = problems.D, problems.HEADS


class Attention(nn.Module):
    """Query, key and value each by a product of its own."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.dense = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x):
        return self.dense(attend(self.query(x), self.key(x), self.value(x)))


def attend(q, k, v, causal=False):
    n, s, _ = q.shape
    q, k, v = (t.view(n, s, HEADS, -1).transpose(1, 2) for t in (q, k, v))
    scores = q @ k.transpose(2, 3) * (D // HEADS) ** -0.5
    if causal:
        scores = scores + torch.full((s, s), -1e9, dtype=q.dtype).triu(1)
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, s, -1)


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.intermediate, self.output = nn.Linear(D, 2 * D), nn.Linear(2 * D, D)

    def forward(self, x):
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.output(F.gelu(self.intermediate(x))))


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(problems.VOCABULARY, D)
        self.position = nn.Embedding(problems.LENGTH, D)

    def forward(self, x):
        return self.word(x) + self.position.weight


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = Embeddings()
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(EncoderLayer() for _ in range(2))
        self.classifier = nn.Linear(D, problems.CLASSES)

    def forward(self, x):
        x = self.embeddings(x)
        for layer in self.encoder.layer:
            x = layer(x)
        return self.classifier(x.mean(1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attn, self.mlp = nn.Module(), nn.Module()
        self.attn.c_attn, self.attn.c_proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.mlp.c_fc, self.mlp.c_proj = nn.Linear(D, 2 * D), nn.Linear(2 * D, D)

    def forward(self, x):
        q, k, v = self.attn.c_attn(self.ln_1(x)).split(D, dim=2)
        x = x + self.attn.c_proj(attend(q, k, v, causal=True))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = Embeddings()
        self.h = nn.ModuleList(Block() for _ in range(2))
        self.ln_f = nn.LayerNorm(D)

    def forward(self, x):
        x = self.embeddings(x)
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.embeddings.word.weight.T


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 8, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(8, 12, 1)
        self.classifier = nn.Linear(12, problems.CLASSES)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.classifier(x.mean((2, 3)))


NETWORKS = {"encoder": Encoder, "decoder": Decoder, "cnn": CNN}


def network(name: str, dtype=torch.float64) -> nn.Module:
    """The network with the weights of the problem."""
    net = NETWORKS[name]()
    weights = problems.MODELS[name]().weights
    net.load_state_dict({n: torch.tensor(a) for n, a in weights.items()})
    return net.to(dtype)


def adapted(title: str, variant: str, dtype=torch.float64) -> nn.Module:
    """The network with peft's adapter, which begins with the numbers that onnxgrad begins with."""
    name = title.split()[0]
    problem = problems.MODELS[name]()
    targets, modules = problems.TARGETS[title]
    config = peft.LoraConfig(
        r=problem.lora["r"], lora_alpha=problem.lora["alpha"], target_modules=modules,
        use_rslora=variant == "rslora", use_dora=variant == "dora", lora_dropout=0.0,
    )  # fmt: skip
    net = peft.get_peft_model(network(name, dtype), config)
    planned = adapter.plan(
        load(problem.model()), Lora(**problem.lora, variant=variant, targets=targets)
    )
    start = {n: torch.tensor(a).to(dtype) for n, a in tensors_of(planned, planned.tensors).items()}
    result = peft.set_peft_model_state_dict(net, start)
    assert not result.unexpected_keys
    return net


def curve(title: str, variant: str) -> np.ndarray:
    """The loss of every step, in double."""
    problem = problems.MODELS[title.split()[0]]()
    net = adapted(title, variant)
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=problem.lr)
    losses = []
    for x, y in problem.batches:
        x = torch.tensor(x)
        output = net(x.double() if x.is_floating_point() else x)
        loss = F.cross_entropy(output.flatten(0, -2), torch.tensor(y).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def curves() -> dict[str, np.ndarray]:
    """Every model with every variant."""
    return {f"{t}/{v}": curve(t, v) for t in problems.TARGETS for v in problems.VARIANTS}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    np.savez_compressed(FOLDER / "curves.npz", **curves())
