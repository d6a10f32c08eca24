"""Small networks of the kinds that people train, written as they are written; needs PyTorch.

Each has the weights that PyTorch gives a new network: scales of one, biases of zero, statistics at
their start. Exporters merge such equal tensors, which is what the tests are about.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

# ---- pictures


def conv_bn(i, o, kernel=3, stride=1, groups=1, act=nn.ReLU):
    pad = kernel // 2
    layers = [nn.Conv2d(i, o, kernel, stride, pad, groups=groups, bias=False), nn.BatchNorm2d(o)]
    return nn.Sequential(*layers, *([act()] if act else []))


class Residual(nn.Module):
    """ResNet: blocks that add."""

    def __init__(self):
        super().__init__()
        self.stem = conv_bn(3, 8)
        self.a, self.b = conv_bn(8, 8), conv_bn(8, 8, act=None)
        self.down, self.skip = conv_bn(8, 16, stride=2), conv_bn(8, 16, 1, stride=2, act=None)
        self.c = conv_bn(16, 16, act=None)
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        x = self.stem(x)
        x = F.relu(x + self.b(self.a(x)))
        x = F.relu(self.skip(x) + self.c(self.down(x)))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Dense(nn.Module):
    """DenseNet: normalise, activate, convolve, concatenate."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.layers = nn.ModuleList()
        for k in range(3):
            i = 8 + 4 * k
            self.layers.append(
                nn.Sequential(
                    nn.BatchNorm2d(i), nn.ReLU(), nn.Conv2d(i, 8, 1, bias=False),
                    nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1, bias=False),
                )
            )  # fmt: skip
        self.norm = nn.BatchNorm2d(20)
        self.fc = nn.Linear(20, 4)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.fc(F.relu(self.norm(x)).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = conv_bn(3, 6), conv_bn(6, 12)
        self.up = nn.ConvTranspose2d(12, 6, 2, 2)
        self.three = conv_bn(12, 6)
        self.out = nn.Conv2d(6, 3, 1)

    def forward(self, x):
        a = self.one(x)
        b = self.two(F.max_pool2d(a, 2))
        return self.out(self.three(torch.cat([a, self.up(b)], 1)))


class SqueezeExcite(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(c, 4, 1), nn.Conv2d(4, c, 1)

    def forward(self, x):
        s = F.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.expand(F.silu(self.reduce(s))))


class MBConv(nn.Module):
    def __init__(self, c, expand=2):
        super().__init__()
        self.expand = conv_bn(c, c * expand, 1, act=nn.SiLU)
        self.depthwise = conv_bn(c * expand, c * expand, 3, groups=c * expand, act=nn.SiLU)
        self.se = SqueezeExcite(c * expand)
        self.project = conv_bn(c * expand, c, 1, act=None)

    def forward(self, x):
        return x + self.project(self.se(self.depthwise(self.expand(x))))


class Efficient(nn.Module):
    """EfficientNet: inverted bottlenecks with squeeze and excitation."""

    def __init__(self):
        super().__init__()
        self.stem = conv_bn(3, 8, stride=2, act=nn.SiLU)
        self.blocks = nn.Sequential(MBConv(8), MBConv(8))
        self.head = conv_bn(8, 16, 1, act=nn.SiLU)
        self.drop = nn.Dropout(0.0)
        self.classifier = nn.Linear(16, 4)

    def forward(self, x):
        x = self.head(self.blocks(self.stem(x)))
        return self.classifier(self.drop(F.adaptive_avg_pool2d(x, 1).flatten(1)))


class ConvNeXtBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.dwconv = nn.Conv2d(c, c, 7, padding=3, groups=c)
        self.norm = nn.LayerNorm(c, eps=1e-6)
        self.up, self.down = nn.Linear(c, 2 * c), nn.Linear(2 * c, c)
        self.gamma = nn.Parameter(1e-1 * torch.ones(c))

    def forward(self, x):
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        y = self.gamma * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, 4)
        self.blocks = nn.Sequential(ConvNeXtBlock(8), ConvNeXtBlock(8))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.stem(x)).mean((2, 3))))


class Normalised(nn.Module):
    """A network that normalises its pictures itself, by a buffer of means and deviations; PReLU."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))
        self.conv, self.act = nn.Conv2d(3, 8, 3, 2), nn.PReLU()
        self.conv2, self.act2 = nn.Conv2d(8, 8, 3, 2), nn.PReLU()
        self.norm, self.fc = nn.GroupNorm(2, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = self.act(self.conv((x - self.mean) / self.std))
        return self.fc(self.norm(self.act2(self.conv2(x))).mean((2, 3)))


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
        self.one, self.bn = nn.Linear(17, 16), nn.BatchNorm1d(16)
        self.two = nn.Linear(16, 4)

    def forward(self, x):
        h = torch.log1p(torch.abs((x * self.window) @ self.basis))
        return self.two(F.relu(self.bn(self.one(h))))


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


# ---- the list


@dataclass
class Network:
    """`inputs` are shapes with the range of integers, or None for floats; `classes` of the targets."""

    make: object
    inputs: tuple
    classes: int
    target: tuple = ()
    axis: int = 1


PICTURE = (((8, 3, 16, 16), None),)
WORDS = (((8, 10), 30),)
NETWORKS = {
    "table": Network(TwoLayers, (((16, 13), None),), 3),
    "resnet": Network(Residual, PICTURE, 4),
    "densenet": Network(Dense, PICTURE, 4),
    "unet": Network(UNet, PICTURE, 3, (16, 16)),
    "efficientnet": Network(Efficient, PICTURE, 4),
    "convnext": Network(ConvNeXt, PICTURE, 4),
    "normalised": Network(Normalised, PICTURE, 4),
    "vit": Network(ViT, PICTURE, 4),
    "mixer": Network(Mixer, PICTURE, 4),
    "gpt": Network(GPT, (((8, 10), 40),), 40, (10,), -1),
    "sinusoid": Network(SinusoidEncoder, WORDS, 5),
    "bert": Network(bert, (((8, 10), 40), ((8, 10), 2)), 4),
    "lstm_tagger": Network(lambda: Tagger("LSTM"), WORDS, 5, (10,), -1),
    "gru_tagger": Network(lambda: Tagger("GRU"), WORDS, 5, (10,), -1),
    "wavenet": Network(WaveNet, (((8, 1, 24), None),), 6, (24,)),
    "spectrogram": Network(Spectrogram, (((16, 32), None),), 4),
}


def folded(network: nn.Module) -> nn.Module:
    """Fold batch normalisations into the layer before them, as exporters do for inference."""
    from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

    for module in network.modules():
        if not isinstance(module, nn.Sequential):
            continue
        for number in range(len(module) - 1):
            layer, norm = module[number], module[number + 1]
            if isinstance(layer, (nn.Conv1d, nn.Conv2d)) and isinstance(norm, _NORMS):
                module[number], module[number + 1] = fuse_conv_bn_eval(layer, norm), nn.Identity()
            elif isinstance(layer, nn.Linear) and isinstance(norm, _NORMS):
                module[number], module[number + 1] = fuse_linear_bn_eval(layer, norm), nn.Identity()
    return network


_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
