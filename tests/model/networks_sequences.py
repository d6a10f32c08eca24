"""Networks for patches, words and sound: attention, recurrence, dilated convolutions; needs PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

# ---- patches and words


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x, mask=None):
        n, s, d = x.shape
        qkv = self.qkv(x).reshape(n, s, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = q @ k.transpose(-2, -1) * (d // self.heads) ** -0.5
        if mask is not None:
            scores = scores + mask[:s, :s]
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, s, d))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.ln1, self.attn = nn.LayerNorm(d), Attention(d, heads)
        self.ln2, self.mlp = (
            nn.LayerNorm(d),
            nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)),
        )

    def forward(self, x, mask=None):
        x = x + self.attn(self.ln1(x), mask)
        return x + self.mlp(self.ln2(x))


class ViT(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.patch = nn.Conv2d(3, d, 4, 4)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(torch.zeros(1, 17, d))
        nn.init.trunc_normal_(self.pos, std=0.02)
        self.blocks = nn.ModuleList([Block(d, 2), Block(d, 2)])
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 4)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class GPT(nn.Module):
    """A decoder with a causal mask kept as a buffer, and one matrix for embedding and head."""

    def __init__(self, vocabulary=40, d=16, length=12):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocabulary, d), nn.Embedding(length, d)
        self.blocks = nn.ModuleList([Block(d, 2), Block(d, 2)])
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocabulary, bias=False)
        self.head.weight = self.tok.weight
        mask = torch.full((length, length), float("-inf")).triu(1)
        self.register_buffer("mask", mask)
        self.register_buffer("index", torch.arange(length))

    def forward(self, ids):
        s = ids.shape[1]
        x = self.tok(ids) + self.pos(self.index[:s])
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


class SinusoidEncoder(nn.Module):
    """nn.TransformerEncoder with the fixed table of positions of the first transformer."""

    def __init__(self, vocabulary=30, d=16, length=10):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, d)
        angle = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
        table = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
        self.register_buffer("positions", table[None])
        layer = nn.TransformerEncoderLayer(d, 2, 32, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(d, 5)

    def forward(self, ids):
        x = self.embed(ids) * 4.0 + self.positions[:, : ids.shape[1]]
        return self.out(self.encoder(x).mean(1))


class Mixer(nn.Module):
    def __init__(self, d=12, tokens=16):
        super().__init__()
        self.patch = nn.Conv2d(3, d, 4, 4)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.t1, self.t2 = nn.Linear(tokens, 16), nn.Linear(16, tokens)
        self.c1, self.c2 = nn.Linear(d, 24), nn.Linear(24, d)
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 4)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = x + self.t2(F.gelu(self.t1(self.n1(x).transpose(1, 2)))).transpose(1, 2)
        x = x + self.c2(F.gelu(self.c1(self.n2(x))))
        return self.head(self.norm(x).mean(1))


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=16, num_labels=4,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, return_dict=False,
    )  # fmt: skip

    class Bert(nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = BertForSequenceClassification(config)

        def forward(self, ids, mask):
            return self.bert(input_ids=ids, attention_mask=mask)[0]

    return Bert()


# ---- sequences


class Tagger(nn.Module):
    """A bidirectional LSTM or a GRU over words, an answer at each."""

    def __init__(self, kind):
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        both = kind == "LSTM"
        self.rnn = getattr(nn, kind)(8, 8, 2, batch_first=True, bidirectional=both)
        self.norm = nn.LayerNorm(16 if both else 8)
        self.out = nn.Linear(16 if both else 8, 5)

    def forward(self, ids):
        return self.out(self.norm(self.rnn(self.embed(ids))[0]))


class FirstState(nn.Module):
    """An LSTM whose first states are parameters, one row for the whole batch, and a learned query."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        self.h, self.c = (nn.Parameter(torch.zeros(2, 1, 6)) for _ in range(2))
        self.rnn = nn.LSTM(8, 6, bidirectional=True, batch_first=True)
        self.query, self.out = nn.Parameter(torch.randn(12) / 3), nn.Linear(12, 5)

    def forward(self, ids):
        first = [v.expand(-1, len(ids), -1).contiguous() for v in (self.h, self.c)]
        y, _ = self.rnn(self.embed(ids), tuple(first))
        return self.out(((y @ self.query).softmax(-1)[..., None] * y).sum(1))


class WaveNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.first = nn.Conv1d(1, c, 1)
        self.gates = nn.ModuleList([nn.Conv1d(c, 2 * c, 2, dilation=2**k) for k in range(3)])
        self.skips = nn.ModuleList([nn.Conv1d(c, c, 1) for _ in range(3)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(c) for _ in range(3)])
        self.last = nn.Conv1d(c, 6, 1)

    def forward(self, x):
        x, total = self.first(x), 0
        for k in range(3):
            a, b = self.gates[k](F.pad(x, (2**k, 0))).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            total = total + self.skips[k](y)
            x = self.norms[k](x + y)
        return self.last(F.relu(total))


class Spectrogram(nn.Module):
    """Frames weighted by a window function, then a network with batch normalisation."""

    def __init__(self, n=32):
        super().__init__()
        self.register_buffer("window", torch.hann_window(n))
        basis = torch.fft.rfft(torch.eye(n)).real.contiguous()
        self.register_buffer("basis", basis)
        self.one = nn.Sequential(nn.Linear(17, 16), nn.BatchNorm1d(16))
        self.two = nn.Linear(16, 4)

    def forward(self, x):
        h = torch.log1p(torch.abs((x * self.window) @ self.basis))
        return self.two(F.relu(self.one(h)))


class TwoLayers(nn.Module):
    """The table network: Linear, BatchNorm1d, ReLU, twice."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(13, 16), nn.BatchNorm1d(16), nn.ReLU(),
            nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)
