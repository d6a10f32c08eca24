"""Networks whose new weights are equal by chance in more places than scales and biases; needs PyTorch.

Exporters merge such tensors, what is computed from them, and what is computed from nothing else.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def without_biases(module: nn.Module) -> nn.Module:
    """Begin with biases of zero and orthogonal recurrent weights, as many do."""
    for name, parameter in module.named_parameters():
        if "bias" in name:
            nn.init.zeros_(parameter)
        elif "weight_hh" in name:
            nn.init.orthogonal_(parameter)
    return module


# ---- copies of layers, tied matrices


class Decoder(nn.Module):
    """Copies of one layer that read the same memory: their keys and values are equal, too, as long as they are new."""

    def __init__(self, d=8):
        super().__init__()
        self.embed = nn.Embedding(30, d)
        layer = nn.TransformerDecoderLayer(d, 2, 16, 0.0, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, 2)
        self.out = nn.Linear(d, 5)

    def forward(self, ids):
        return self.out(self.decoder(self.embed(ids[:, :4]), self.embed(ids[:, 4:])).mean(1))


class Crossed(nn.Module):
    """Attention to another input, twice: three projections of their own sizes, one bias for all, which is split."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (
            nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True) for _ in range(2)
        )
        self.out = nn.Linear(8, 4)

    def forward(self, x, y):
        x = self.a(x, y, y)[0]
        return self.out(self.b(x, y, y)[0].mean(1))


class MaskedWords(nn.Module):
    """A language model with a row for padding and one matrix for embedding and head, types that are all zero."""

    def __init__(self, d=8):
        super().__init__()
        self.words = nn.Embedding(30, d, padding_idx=1)
        self.positions, self.types = nn.Embedding(10, d), nn.Embedding(2, d)
        nn.init.zeros_(self.positions.weight)
        nn.init.zeros_(self.types.weight)
        self.norm, self.mix = nn.LayerNorm(d), nn.Linear(d, d)
        self.head = nn.Linear(d, 30)
        self.head.weight = self.words.weight

    def forward(self, ids):
        places = torch.arange(ids.shape[1])
        x = self.words(ids) + self.positions(places) + self.types(torch.zeros_like(ids))
        return self.head(F.gelu(self.mix(self.norm(x))) + x.mean(1, keepdim=True))


class Twins(nn.Module):
    """One encoder for two pictures, with batch normalisation."""

    def __init__(self):
        super().__init__()
        conv = nn.Conv2d(3, 6, 3, bias=False)
        self.encode = nn.Sequential(conv, nn.BatchNorm2d(6), nn.ReLU())
        self.out = nn.Linear(6, 2)

    def forward(self, a, b):
        a, b = (self.encode(x).mean((2, 3)) for x in (a, b))
        return self.out((a - b).abs())


# ---- parameters that nothing else is needed to compute with


class Temperature(nn.Module):
    """CLIP: two encoders, and a temperature that is trained as its logarithm."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8)) for _ in range(2))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, a, b):
        a, b = F.normalize(self.a(a), dim=-1), F.normalize(self.b(b), dim=-1)
        return self.scale.exp() * a @ b.T


class Seeds(nn.Module):
    """Learned vectors that attend to a set, and are added once more."""

    def __init__(self, d=8):
        super().__init__()
        self.seeds = nn.Parameter(torch.randn(1, 2, d) / 4)
        self.attend = nn.MultiheadAttention(d, 2, batch_first=True)
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(2 * d, 4)

    def forward(self, x):
        found = self.attend(self.seeds.repeat(len(x), 1, 1), x, x)[0]
        return self.out(self.norm(found + self.seeds).flatten(1))


class Gated(nn.Module):
    """A branch and its gate that begin at zero, and layers that begin as the identity."""

    def __init__(self, d=8):
        super().__init__()
        self.first, self.second = nn.Linear(d, d), nn.Linear(d, d)
        self.branch, self.gate = nn.Linear(d, d), nn.Linear(d, d)
        for layer in (self.first, self.second):
            nn.init.eye_(layer.weight)
        for layer in (self.branch, self.gate):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.out = nn.Linear(d, 4)

    def forward(self, x):
        x = F.relu(self.second(F.relu(self.first(x))))
        return self.out(x + torch.sigmoid(self.gate(x)) * self.branch(x))


class Graph(nn.Module):
    """Graph convolutions with the normalised matrix of a graph as a buffer."""

    def __init__(self, nodes=7):
        super().__init__()
        near = torch.rand(nodes, nodes) > 0.6
        near = (near | near.T).float() + torch.eye(nodes)
        root = near.sum(1).rsqrt()
        self.register_buffer("adjacency", root[:, None] * near * root)
        self.one, self.two = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.adjacency @ self.two(F.relu(self.adjacency @ self.one(x)))


# ---- recurrence from a state of zeros, with biases of zero


class ZeroTagger(nn.Module):
    def __init__(self, kind, layers=2, both=False):
        super().__init__()
        self.embed = nn.Embedding(30, 6)
        rnn = getattr(nn, kind)(6, 6, layers, batch_first=True, bidirectional=both)
        self.rnn, self.out = without_biases(rnn), nn.Linear(12 if both else 6, 5)

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0])


class Cells(nn.Module):
    """A cell in a loop of one's own."""

    def __init__(self):
        super().__init__()
        self.embed, self.cell = nn.Embedding(30, 6), without_biases(nn.GRUCell(6, 6))
        self.out = nn.Linear(6, 5)

    def forward(self, ids):
        x = self.embed(ids)
        h = torch.zeros(len(ids), 6, dtype=x.dtype)
        for step in range(4):
            h = self.cell(x[:, step], h)
        return self.out(h)


# ---- normalisations


def normalised_twice(norm) -> nn.Module:
    """Two convolutions, each with a normalisation."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, bias=False), norm(6), nn.ReLU(),
        nn.Conv2d(6, 6, 3, bias=False), norm(6), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4),
    )  # fmt: skip


def instances() -> nn.Module:
    return normalised_twice(lambda c: nn.InstanceNorm2d(c, affine=True, track_running_stats=True))


def plain_instances() -> nn.Module:
    return normalised_twice(lambda c: nn.InstanceNorm2d(c, track_running_stats=True))


def plain_batches() -> nn.Module:
    return normalised_twice(lambda c: nn.BatchNorm2d(c, affine=False))
