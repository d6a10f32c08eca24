"""Networks of which exporters merge parts of another kind, or write down what looks like a weight; needs PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Distilled(nn.Module):
    """DeiT: two tokens that begin at zero, each repeated for every picture, and a head for each."""

    def __init__(self, d=8):
        super().__init__()
        self.patch = nn.Conv2d(3, d, 4, 4)
        self.first, self.second = (nn.Parameter(torch.zeros(1, 1, d)) for _ in range(2))
        self.places = nn.Parameter(torch.randn(1, 6, d) / 8)
        self.attend, self.norm = nn.MultiheadAttention(d, 2, batch_first=True), nn.LayerNorm(d)
        self.one, self.two = nn.Linear(d, 4), nn.Linear(d, 4)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        tokens = [p.expand(x.shape[0], -1, -1) for p in (self.first, self.second)]
        x = torch.cat([*tokens, x], 1) + self.places
        x = self.norm(x + self.attend(x, x, x)[0])
        return self.one(x[:, 0]) + self.two(x[:, 1])


class Biased(nn.Module):
    """Attention with what ALiBi adds for distances, and with the mask of a window that was shifted."""

    def __init__(self, d=8, length=6):
        super().__init__()
        self.embed, self.norm = nn.Embedding(30, d), nn.LayerNorm(d)
        self.query, self.key, self.value = (nn.Linear(d, d) for _ in range(3))
        near = torch.arange(length)[None] - torch.arange(length)[:, None]
        slopes = torch.tensor([0.5, 0.0625]).view(2, 1, 1)
        self.register_buffer("distances", slopes * near.clamp(max=0))
        group = torch.tensor([0, 0, 1, 1, 1, 0])
        self.register_buffer("apart", torch.where(group[None] == group[:, None], 0.0, -100.0))
        self.out = nn.Linear(d, 5)

    def forward(self, ids):
        x = self.embed(ids)
        n, t, d = x.shape
        parts = (
            f(x).view(n, t, 2, d // 2).transpose(1, 2) for f in (self.query, self.key, self.value)
        )
        q, k, v = parts
        scores = q @ k.transpose(-1, -2) / 2 + self.distances[:, :t, :t] + self.apart[:t, :t]
        x = x + (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, d)
        return self.out(self.norm(x).mean(1))


class Detector(nn.Module):
    """One head with a GroupNorm for two sizes of a picture, and sizes by anchors."""

    def __init__(self, c=8):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, c, 3, 2, 1), nn.Conv2d(c, c, 3, 2, 1)
        self.head = nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.GroupNorm(2, c), nn.ReLU())
        self.sizes = nn.Conv2d(c, 6, 1)
        anchors = torch.tensor([[10.0, 13.0], [16.0, 30.0], [33.0, 23.0]]) / 8
        self.register_buffer("anchors", anchors.view(1, 6, 1, 1))
        self.out = nn.Linear(12, 4)

    def forward(self, x):
        a = F.relu(self.one(x))
        b = F.relu(self.two(a))
        found = [torch.sigmoid(self.sizes(self.head(v))) * self.anchors for v in (a, b)]
        return self.out(torch.cat([v.mean((2, 3)) for v in found], 1))


class Gates(nn.Module):
    """Layers that begin with zeros and ones: the bias of forget gates, kernels that pass what they get."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(3, 6, 3, padding=1)
        self.pass_one, self.pass_two = (nn.Conv1d(6, 6, 3, padding=1, bias=False) for _ in range(2))
        for layer in (self.pass_one, self.pass_two):
            nn.init.dirac_(layer.weight)
        self.rnn = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)
        for name, parameter in self.rnn.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)
            if "bias_ih" in name:
                nn.init.ones_(parameter[5:10].detach())
        self.out = nn.Linear(10, 4)

    def forward(self, x):
        x = torch.tanh(self.pass_two(torch.tanh(self.pass_one(torch.tanh(self.first(x))))))
        return self.out(self.rnn(x.transpose(1, 2))[0].mean(1))


class Added(nn.Module):
    """A trained network: two biases that are added began at zero and have the same gradient ever since."""

    def __init__(self, d=6):
        super().__init__()
        self.a, self.b = nn.Linear(5, d), nn.Linear(5, d)
        self.left, self.right = nn.LayerNorm(d), nn.LayerNorm(d)
        self.out = nn.Linear(d, 3)
        for one, other in ((self.a, self.b), (self.left, self.right)):
            nn.init.normal_(one.bias)
            nn.init.normal_(one.weight)
            nn.init.normal_(other.weight)
            other.bias.data.copy_(one.bias)

    def forward(self, x):
        h = torch.tanh(self.a(x) + self.b(x * x))
        return self.out(torch.tanh(self.left(h) + self.right(h * h)))


class FromZeros(nn.Module):
    """Steps from a state of zeros: what a layer makes of it is its bias, or nothing."""

    def __init__(self, d=6):
        super().__init__()
        self.enter, self.again = nn.Linear(d, d), nn.Linear(d, d)
        self.turn, self.norm = nn.Linear(d, d, bias=False), nn.LayerNorm(d)
        self.out = nn.Linear(d, 3)

    def forward(self, x):
        shown = torch.ones_like(x)
        x = x - (x * shown).sum(1, keepdim=True) / shown.sum(1, keepdim=True).clamp(min=1)
        z, u = torch.zeros_like(x), self.enter(x)
        for _ in range(3):
            z = self.norm(torch.tanh(self.again(z) + u + u * self.turn(z)))
        return self.out(z)


class Groups(nn.Module):
    """As many groups as channels: the exporter's ones for the groups are like the parameters of the channels."""

    def __init__(self, c=6):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, c, 3), nn.InstanceNorm2d(c, affine=True), nn.PReLU(),
            nn.Conv2d(c, c, 3), nn.GroupNorm(c, c), nn.SiLU(),
            nn.Conv2d(c, c, 3), nn.InstanceNorm2d(c), nn.GroupNorm(2, c), nn.PReLU(c),
        )  # fmt: skip
        self.out = nn.Linear(c, 4)

    def forward(self, x):
        return self.out(self.layers(x).mean((2, 3)))


class Bags(nn.Module):
    """A mean over words, which the newer exporter writes as a loop over lists."""

    def __init__(self, d=6):
        super().__init__()
        self.words, self.out = nn.EmbeddingBag(30, d), nn.Linear(d, 5)

    def forward(self, ids):
        return self.out(torch.tanh(self.words(ids)))


class Relative(nn.Module):
    """Attention with learned biases for the distances of a sequence, and of the places of a window of two rows."""

    def __init__(self, d=4, n=6):
        super().__init__()
        self.ask = nn.Linear(5, 3 * d)
        self.line, self.window = (nn.Parameter(0.5 * torch.randn(k, 2)) for k in (2 * n - 1, 3 * 5))
        at = torch.stack((torch.arange(n) // 3, torch.arange(n) % 3))
        down, right = at[:, :, None] - at[:, None] + torch.tensor([1, 2])[:, None, None]
        self.register_buffer("index", torch.arange(n)[:, None] - torch.arange(n) + n - 1)
        self.register_buffer("places", down * 5 + right)
        self.out = nn.Linear(d, 3)

    def forward(self, x):
        q, k, v = self.ask(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        for table, index in ((self.line, self.index), (self.window, self.places)):
            bias = table[index.reshape(-1)].reshape(*index.shape, 2).permute(2, 0, 1)
            v = (q @ k.transpose(-1, -2) + bias).softmax(-1) @ v
        return self.out(torch.tanh(v.transpose(1, 2).flatten(2)).mean(1))
