"""Networks for pictures: convolutions, batch normalisation, residuals; needs PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


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


class Unlearned(nn.Module):
    """Normalisations that learn nothing, each behind one that does: the exporters' own ones and zeros."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, 2), nn.Conv2d(8, 8, 3, padding=1)
        self.group, self.plain_group = nn.GroupNorm(2, 8), nn.GroupNorm(2, 8, affine=False)
        self.instance, self.plain_instance = (
            nn.InstanceNorm2d(8, affine=True),
            nn.InstanceNorm2d(8),
        )
        self.layer, self.plain_layer = nn.LayerNorm(7), nn.LayerNorm(7, elementwise_affine=False)
        self.batch, self.plain_batch = nn.BatchNorm2d(8), nn.BatchNorm2d(8, affine=False)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = torch.relu(self.plain_group(self.group(self.a(x))))
        x = torch.relu(self.plain_instance(self.instance(self.b(x))))
        x = torch.relu(self.plain_layer(torch.relu(self.layer(x))))
        x = self.plain_batch(torch.relu(self.batch(x)))
        return self.fc(torch.relu(x).mean((2, 3)))
