"""The shortest trial of what is trained, and why."""

from __future__ import annotations

from small_models import mlp

from onnxgrad.model.trainable import TrainableModel


def test_the_weights_of_a_small_model():
    model = TrainableModel(mlp())
    assert model.select("all") == ["layer1.weight", "layer1.bias", "layer2.weight"]
    assert model.select("head") == ["layer2.weight"]
    assert model.notes(model.tensors()) == []
