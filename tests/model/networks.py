"""Small networks of the kinds that people train, written as they are written; needs PyTorch.

Each has the weights that PyTorch gives a new network: scales of one, biases of zero, statistics at
their start. Exporters merge such equal tensors, which is what the tests are about.
"""

from __future__ import annotations

from dataclasses import dataclass

from model.networks_pictures import (
    ConvNeXt,
    Dense,
    Efficient,
    Normalised,
    Residual,
    UNet,
    Unlearned,
)  # fmt: skip
from model.networks_sequences import (
    GPT,
    FirstState,
    Mixer,
    SinusoidEncoder,
    Spectrogram,
    Tagger,
    TwoLayers,
    ViT,
    WaveNet,
    bert,
)  # fmt: skip
from torch import nn

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
    "rnn_tagger": Network(lambda: Tagger("RNN"), WORDS, 5, (10,), -1),
    "first_state": Network(FirstState, WORDS, 5),
    "unlearned": Network(Unlearned, PICTURE, 4),
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
    return network.requires_grad_()  # the new biases, too


_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
