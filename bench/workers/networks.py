"""The networks of bench/exported.py, written as people write them in PyTorch; each with the batch of every step.

They differ on purpose in how the same thing is said: packed or separate queries, keys and values; attention by
PyTorch's function or by hand; masks that are causal, additive, or absent; Gelu by erf or by tanh; norms as
modules or from parts.
"""

from __future__ import annotations

import convolutional
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """One product for queries, keys and values; PyTorch's own attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)


class PackedAttention(Attention):
    """Cut after a reshape."""

    def forward(self, x):
        n, s, d = x.shape
        q, k, v = self.qkv(x).reshape(n, s, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(n, s, d))


class CausalAttention(Attention):
    """Cut by split; causal."""

    def forward(self, x):
        n, s, d = x.shape
        parts = (t.view(n, s, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(d, dim=2))
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(n, s, d))


class WrittenAttention(nn.Module):
    """Separate products; softmax(Q·Kᵀ·scale + mask)·V by hand."""

    def __init__(self, width, heads, *, bias=True, scaled=True):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5 if scaled else 1.0
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=bias) for _ in range(4))

    def forward(self, x, memory=None, mask=None):
        memory = x if memory is None else memory
        n, s, d = x.shape

        def split(t):
            return t.view(n, -1, self.heads, d // self.heads).transpose(1, 2)

        q, k, v = split(self.q(x)), split(self.k(memory)), split(self.v(memory))
        scores = torch.matmul(q, k.transpose(-1, -2))
        scores = scores * self.scale if self.scale != 1.0 else scores
        scores = scores if mask is None else scores + mask
        y = torch.matmul(torch.softmax(scores, dim=-1), v)
        return self.out(y.transpose(1, 2).reshape(n, s, d))


class RootMeanSquare(nn.Module):
    """RMSNorm from parts."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Block(nn.Module):
    """Norm first, then attention or the MLP, each added to what came in."""

    def __init__(self, width, attention, activation, ratio=4):
        super().__init__()
        self.attention, self.activation = attention, activation
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, ratio * width), nn.Linear(ratio * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(self.activation(self.up(self.norm2(x))))


class Vit(nn.Module):
    """Patches of 16 pixels, a class token, blocks."""

    def __init__(self, width=192, heads=3, depth=12, size=192, classes=100):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, (size // 16) ** 2 + 1, width) * 0.02)
        blocks = (Block(width, PackedAttention(width, heads), nn.GELU()) for _ in range(depth))
        self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


class Bert(nn.Module):
    """Embeddings, layers with the norm after the sum, a head over the first token; a mask of padding."""

    def __init__(self, width=768, heads=12, depth=4, vocabulary=3000, length=128, classes=10):
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.norm0 = nn.LayerNorm(width)
        self.attention = nn.ModuleList(WrittenAttention(width, heads) for _ in range(depth))
        self.norm1 = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.norm2 = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(depth))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, words):
        mask = (1.0 - (words != 0).float())[:, None, None, :] * -1e4
        x = self.norm0(self.words(words) + self.positions.weight)
        for i, attention in enumerate(self.attention):
            x = self.norm1[i](x + attention(x, mask=mask))
            x = self.norm2[i](x + self.down[i](F.gelu(self.up[i](x))))
        return self.head(x[:, 0])


class Gpt(nn.Module):
    """A decoder: every token predicts the next; tanh Gelu."""

    def __init__(self, width=256, heads=4, depth=4, vocabulary=8000, length=256):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(length, width) * 0.02)
        gelu = nn.GELU(approximate="tanh")
        blocks = (Block(width, CausalAttention(width, heads), gelu) for _ in range(depth))
        self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, words):
        x = self.blocks(self.words(words) + self.position)
        return self.head(self.norm(x)).flatten(0, 1)


class T5(nn.Module):
    """An encoder and a decoder in one, over one table of words; a bias of relative positions, no other scale."""

    def __init__(self, width=256, heads=4, depth=2, vocabulary=4000, length=128):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.relative = nn.Embedding(2 * length, heads)
        places = torch.arange(length)
        self.register_buffer("places", places[None, :] - places[:, None] + length)
        self.register_buffer("ahead", torch.triu(torch.full((length, length), -1e9), 1))

        def attention():
            return WrittenAttention(width, heads, bias=False, scaled=False)

        self.encoder = nn.ModuleList(attention() for _ in range(depth))
        self.decoder = nn.ModuleList(attention() for _ in range(depth))
        self.cross = nn.ModuleList(attention() for _ in range(depth))
        self.norms = nn.ModuleList(RootMeanSquare(width) for _ in range(5 * depth + 2))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width, bias=False) for _ in range(2 * depth))
        self.down = nn.ModuleList(nn.Linear(4 * width, width, bias=False) for _ in range(2 * depth))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def mlp(self, i, x):
        return self.down[i](F.relu(self.up[i](x)))

    def forward(self, words):
        norms = iter(self.norms)
        bias = self.relative(self.places).permute(2, 0, 1)[None]
        x = self.words(words)
        for i, attention in enumerate(self.encoder):
            x = x + attention(next(norms)(x), mask=bias)
            x = x + self.mlp(i, next(norms)(x))
        memory, y, causal = next(norms)(x), self.words(words), bias + self.ahead
        for i, attention in enumerate(self.decoder):
            y = y + attention(next(norms)(y), mask=causal)
            y = y + self.cross[i](next(norms)(y), memory)
            y = y + self.mlp(len(self.encoder) + i, next(norms)(y))
        return self.head(next(norms)(y)).flatten(0, 1)


class ConvNextBlock(nn.Module):
    """Depthwise 7×7, then a norm and an MLP over channels that lie last, scaled per channel."""

    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        y = self.gamma * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    """Three stages of 64, 128 and 256 channels."""

    def __init__(self, widths=(64, 128, 256), depths=(2, 2, 4), classes=100):
        super().__init__()
        stages = [nn.Conv2d(3, widths[0], 4, 4)]
        for i, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            stages += [nn.Conv2d(widths[i - 1], width, 2, 2)] if i else []
            stages += [ConvNextBlock(width) for _ in range(depth)]
        self.stages, self.norm = nn.Sequential(*stages), nn.LayerNorm(widths[-1])
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x):
        return self.head(self.norm(self.stages(x).mean((2, 3))))


class MixerBlock(nn.Module):
    """An MLP across tokens, then one across channels."""

    def __init__(self, tokens, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.token_up, self.token_down = (
            nn.Linear(tokens, width // 2),
            nn.Linear(width // 2, tokens),
        )
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm1(x).transpose(1, 2)
        x = x + self.token_down(F.gelu(self.token_up(y))).transpose(1, 2)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Mixer(nn.Module):
    """MLP-Mixer: patches of 16 pixels."""

    def __init__(self, width=256, depth=6, size=224, classes=100):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)
        self.blocks = nn.Sequential(*(MixerBlock((size // 16) ** 2, width) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


def pictures(batch, size, classes=100):
    return torch.randn(batch, 3, size, size), torch.randint(classes, (batch,))


def tokens(batch, length, vocabulary):
    return tuple(torch.randint(1, vocabulary, (batch, length)) for _ in range(2))


def with_padding(batch, length, vocabulary, classes=10):
    """Sentences of different length; 0 is not a word."""
    words = torch.randint(1, vocabulary, (batch, length))
    for i in range(batch):
        words[i, length - i * length // 8 :] = 0
    return words, torch.randint(classes, (batch,))


# name -> (title, the network, its batch)
NETWORKS = {
    "vit": ("ViT-Tiny, 12 layers of 192, 145 tokens, batch 4", Vit, lambda: pictures(4, 192)),
    "bert": (
        "BERT, 4 layers of 768, 128 tokens, batch 4",
        Bert,
        lambda: with_padding(4, 128, 3000),
    ),
    "gpt": ("GPT-2-like, 4 layers of 256, 256 tokens, batch 4", Gpt, lambda: tokens(4, 256, 8000)),
    "t5": ("T5-like, 2 + 2 layers of 256, 128 tokens, batch 4", T5, lambda: tokens(4, 128, 4000)),
    "convnext": ("ConvNeXt, 64-128-256 at 128×128, batch 4", ConvNext, lambda: pictures(4, 128)),
    "mixer": ("MLP-Mixer, 6 layers of 256, 196 tokens, batch 4", Mixer, lambda: pictures(4, 224)),
    **convolutional.NETWORKS,
}


def make(name: str):
    """The network with its weights, and its batch; the same in every process."""
    torch.manual_seed(1 + list(NETWORKS).index(name))
    _, network, batch = NETWORKS[name]
    return network(), *batch()
