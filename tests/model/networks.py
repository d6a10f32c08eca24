"""Small networks of the kinds that people train, written as they are written; needs PyTorch.

Each has the weights that PyTorch gives a new network: scales of one, biases of zero, statistics at
their start. Exporters merge such equal tensors, which is what the tests are about.
"""

from __future__ import annotations

from dataclasses import dataclass

from model.networks_merged import (
    Added,
    Bags,
    Biased,
    Detector,
    Distilled,
    FromZeros,
    Gates,
    Groups,
    Relative,
)
from model.networks_others import (
    Cells,
    Crossed,
    Decoder,
    Gated,
    Graph,
    MaskedWords,
    Seeds,
    Temperature,
    Twins,
    ZeroTagger,
    instances,
    plain_batches,
    plain_instances,
)  # fmt: skip
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
    """`inputs` are shapes with the range of integers, or None for floats; `classes` of the targets.

    `dynamic`: exported with a batch of any size.
    """

    make: object
    inputs: tuple
    classes: int
    target: tuple = ()
    axis: int = 1
    dynamic: bool = False


PICTURE = (((8, 3, 16, 16), None),)
SMALL = (((8, 3, 8, 8), None),)
WORDS = (((8, 10), 30),)
SHORT = (((8, 5), 30),)
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
    "decoder": Network(Decoder, WORDS, 5),
    "crossed": Network(Crossed, (((8, 5, 8), None), ((8, 4, 6), None)), 4),
    "masked_words": Network(MaskedWords, WORDS, 30, (10,), -1),
    "twins": Network(Twins, SMALL * 2, 2),
    "temperature": Network(Temperature, (((8, 6), None), ((8, 6), None)), 8),
    "seeds": Network(Seeds, (((8, 5, 8), None),), 4),
    "gated": Network(Gated, (((8, 8), None),), 4),
    "graph": Network(Graph, (((8, 7, 5), None),), 3, (7,), -1),
    "zero_rnn": Network(lambda: ZeroTagger("RNN"), SHORT, 5, (5,), -1),
    "zero_rnn_both": Network(lambda: ZeroTagger("RNN", 1, True), SHORT, 5, (5,), -1),
    "zero_gru": Network(lambda: ZeroTagger("GRU", 2, True), SHORT, 5, (5,), -1),
    "cells": Network(Cells, SHORT, 5),
    "instances": Network(instances, SMALL, 4),
    "plain_instances": Network(plain_instances, SMALL, 4),
    "plain_batches": Network(plain_batches, SMALL, 4),
    "distilled": Network(Distilled, SMALL, 4, dynamic=True),
    "biased": Network(Biased, (((8, 6), 30),), 5, dynamic=True),
    "detector": Network(Detector, SMALL, 4),
    "gates": Network(Gates, (((8, 3, 7), None),), 4),
    "added": Network(Added, (((8, 5), None),), 3),
    "bags": Network(Bags, SHORT, 5),
    "groups": Network(Groups, SMALL, 4),
    "relative": Network(Relative, (((8, 6, 5), None),), 3),
    "from_zeros": Network(FromZeros, (((8, 6), None),), 3),
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
