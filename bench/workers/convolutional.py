"""Convolutional networks whose steps bench/work_span.py looks at, beside those of networks.py: small batches, few
pieces. Norms are over groups, so that a file exported for inference trains as the network does."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def twice(a, b):
    """Two 3×3 convolutions, each with a norm."""
    layers = []
    for i in (a, b):
        layers += [nn.Conv2d(i, b, 3, padding=1), nn.GroupNorm(8, b), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Down three times, up three times, each way joined to the other; a class per pixel."""

    def __init__(self, widths=(32, 64, 128, 256), classes=4):
        super().__init__()
        self.down = nn.ModuleList(twice(a, b) for a, b in zip((3, *widths), widths, strict=False))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in pairs)
        self.join = nn.ModuleList(twice(2 * b, b) for _, b in pairs)
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x):
        seen = []
        for i, down in enumerate(self.down):
            x = down(x if i == 0 else F.max_pool2d(x, 2))
            seen.append(x)
        for up, join, skip in zip(self.up, self.join, seen[-2::-1], strict=True):
            x = join(torch.cat([up(x), skip], dim=1))
        return self.head(x).permute(0, 2, 3, 1).flatten(0, 2)


class WaveNet(nn.Module):
    """Dilated convolutions over a waveform, gated, each with a way out; a class per sample."""

    def __init__(self, width=32, depth=8, skips=64, classes=64):
        super().__init__()
        self.enter = nn.Conv1d(1, width, 1)
        self.gated = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 2, dilation=2**i) for i in range(depth)
        )
        self.back = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(depth))
        self.out = nn.ModuleList(nn.Conv1d(width, skips, 1) for _ in range(depth))
        self.last, self.head = nn.Conv1d(skips, skips, 1), nn.Conv1d(skips, classes, 1)

    def forward(self, x):
        x, total = self.enter(x), 0
        for i, gated in enumerate(self.gated):
            a, b = gated(F.pad(x, (2**i, 0))).chunk(2, dim=1)
            y = torch.tanh(a) * torch.sigmoid(b)
            total, x = total + self.out[i](y), x + self.back[i](y)
        return self.head(F.relu(self.last(F.relu(total)))).transpose(1, 2).flatten(0, 1)


class DenseNet(nn.Module):
    """Every layer reads all before it."""

    def __init__(self, growth=16, depths=(4, 4, 4), width=32, classes=100):
        super().__init__()
        parts = [nn.Conv2d(3, width, 3, 2, 1)]
        for depth in depths:
            parts.append(
                nn.ModuleList(self.layer(width + i * growth, growth) for i in range(depth))
            )
            width = (width + depth * growth) // 2
            parts.append(nn.Conv2d(2 * width, width, 1))
        self.parts, self.head = nn.ModuleList(parts), nn.Linear(width, classes)

    @staticmethod
    def layer(width, growth):
        return nn.Sequential(
            nn.GroupNorm(8, width), nn.ReLU(), nn.Conv2d(width, 4 * growth, 1),
            nn.GroupNorm(8, 4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, padding=1),
        )  # fmt: skip

    def forward(self, x):
        x = self.parts[0](x)
        for layers, narrow in zip(self.parts[1::2], self.parts[2::2], strict=True):
            for layer in layers:
                x = torch.cat([x, layer(x)], dim=1)
            x = F.avg_pool2d(narrow(x), 2)
        return self.head(x.mean((2, 3)))


class Volumes(nn.Module):
    """Convolutions over space and time."""

    def __init__(self, widths=(16, 32, 64), classes=10):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv3d(a, b, 3, padding=1) for a, b in zip((1, *widths), widths, strict=False)
        )
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x):
        for conv in self.convs:
            x = F.max_pool3d(F.relu(conv(x)), 2)
        return self.head(x.mean((2, 3, 4)))


# name -> (title, the network, its batch)
NETWORKS = {
    "unet": (
        "U-Net, 32 to 256 channels at 96×96, batch 2",
        UNet,
        lambda: (torch.randn(2, 3, 96, 96), torch.randint(4, (2, 96, 96))),
    ),
    "wavenet": (
        "WaveNet, 8 layers of 32, 4,000 samples, batch 2",
        WaveNet,
        lambda: (torch.randn(2, 1, 4000), torch.randint(64, (2, 4000))),
    ),
    "densenet": (
        "DenseNet, 3 × 4 layers at 64×64, batch 4",
        DenseNet,
        lambda: (torch.randn(4, 3, 64, 64), torch.randint(100, (4,))),
    ),
    "densenet121": (
        "DenseNet, 6 + 12 + 24 + 16 layers of 32 at 96×96, batch 4",
        lambda: DenseNet(growth=32, depths=(6, 12, 24, 16), width=64),
        lambda: (torch.randn(4, 3, 96, 96), torch.randint(100, (4,))),
    ),
    "volumes": (
        "3-D CNN, 16-32-64 at 16×48×48, batch 2",
        Volumes,
        lambda: (torch.randn(2, 1, 16, 48, 48), torch.randint(10, (2,))),
    ),
}
