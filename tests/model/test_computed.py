"""Numbers that an exporter computed beforehand: from parameters, from buffers, or from nothing that is learned."""

from __future__ import annotations

import numpy as np
import pytest
from model import merged_models as models

from onnxgrad import Trainer
from onnxgrad.model.trainable import TrainableModel


@pytest.mark.parametrize(("name", "said"), [("onnx::Mul_3", True), ("/Constant_output_0", False)])
def test_a_number_that_pytorch_2_computed_is_of_a_parameter_or_a_buffer(name, said):
    """It writes settings as Constants, whose names they keep where a file is simplified: 1/3 is a softmax of zeros."""
    nodes = [models.node("MatMul", "x w", "a"), models.node("Mul", f"a {name}", "y")]
    tensors = {"w": models.normal(4, 4), name: np.array(1 / 3, np.float32)}
    model = models.model(nodes, tensors, y=("N", 4))
    model.producer_version = "2.13.0"
    notes = Trainer(model, loss="mse").notes
    assert ("perhaps parameters" in {note.kind for note in notes}) == said


def test_what_was_computed_from_the_shape_of_an_input_is_constant():
    """ones_like(x).sum(1).clamp(min=1): the exporter notes the input."""
    nodes = [models.node("MatMul", "x w", "h"), models.node("Div", "h clamp", "y")]
    tensors = {"w": models.normal(4, 4), "clamp": np.full((6, 1), 4, np.float32)}
    infos = {"clamp": {models.FOLDED: "['x', 'ones_like', 'sum_1', 'scalar_tensor_default']"}}
    model = models.model(nodes, tensors, x=(6, 4), y=(6, 4), infos=infos)
    assert TrainableModel(model).select("all") == ["w"]


def test_a_product_with_zeros_is_constant():
    """The first step of a cell without a bias, from a state of zeros."""
    nodes = [models.node("MatMul", "x w", "h"), models.node("Add", "h linear_1", "y")]
    tensors = {"w": models.normal(4, 4), "linear_1": models.zeros(6, 4)}
    infos = {"linear_1": {models.FOLDED: "['cell.weight', 'x', 'zeros_like']"}}
    model = models.model(nodes, tensors, x=(6, 4), y=(6, 4), infos=infos)
    assert TrainableModel(model).select("all") == ["w"]


def test_the_left_side_of_a_product_without_a_name_was_computed():
    """(2·b)·a of an adapter that is added to a weight: the older exporter multiplies beforehand and tells nothing."""
    nodes = [
        models.node("MatMul", "onnx::MatMul_7 a", "d"),
        models.node("Add", "w d", "v"),
        models.node("MatMul", "x v", "y"),
    ]
    tensors = {
        "onnx::MatMul_7": models.zeros(4, 2),
        "a": models.normal(2, 4),
        "w": models.normal(4, 4),
    }
    model = models.model(nodes, tensors, y=("N", 4))
    model.producer_version = "2.13.0"
    notes = {note.kind: note.text for note in Trainer(model, loss="mse").notes}
    assert "'onnx::MatMul_7'" in notes["computed weights"]


@pytest.mark.parametrize(("name", "kind"), [("blur.kernel", "filters"), ("down.weight", "weight")])
def test_one_filter_for_every_channel_is_fixed(name, kind):
    """A blur before a smaller picture, as a buffer of the older exporter; a layer's own kernel may begin so."""
    line = np.array([1, 4, 6, 4, 1], np.float32) / 16
    kernel = np.tile(np.outer(line, line), (4, 1, 1, 1))
    nodes = [models.node("Conv", "x w", "h"), models.node("Conv", f"h {name}", "y", group=4)]
    tensors = {"w": models.normal(4, 3, 1, 1), name: kernel}
    model = models.model(nodes, tensors, x=("N", 3, 8, 8), y=("N", 4, 4, 4))
    assert {t.name: t.kind for t in TrainableModel(model).tensors()} == {"w": "weight", name: kind}


@pytest.mark.parametrize(("shape", "said"), [((2, 4), True), ((8,), False)])
def test_what_is_added_without_a_name_was_computed_unless_it_is_a_layers_bias(shape, said):
    """A bias of the heads that an attention scales: the older exporter wrote the product down and nothing of it."""
    nodes = [models.node("MatMul", "x w", "q"), models.node("Reshape", "q heads", "h")]
    nodes.append(models.node("Add", f"{'q' if len(shape) == 1 else 'h'} onnx::Add_9", "y"))
    tensors = {
        "w": models.normal(4, 8),
        "onnx::Add_9": models.normal(*shape),
        "heads": np.array([-1, 2, 4]),
    }
    model = models.model(nodes, tensors, y=("N", *shape))
    model.producer_version = "2.13.0"
    kinds = {note.kind for note in Trainer(model, loss="mse").notes}
    assert ("computed weights" in kinds) == said


def test_a_normalisation_that_is_frozen_has_no_weights():
    """torchvision's FrozenBatchNorm2d, by the newer exporter; a second one with equal numbers has its own."""
    nodes = [
        models.node("MatMul", "x w", "h"),
        models.node("Mul", "h mul", "a"),
        models.node("Add", "a sub", "y"),
    ]
    tensors = {"w": models.normal(4, 4), "mul": models.normal(4), "sub": models.normal(4)}
    names = ["n.weight", "n.bias", "n.running_var", "rsqrt", "val_7"]
    infos = {
        "mul": {models.FOLDED: str(names)},
        "sub": {models.FOLDED: str([*names, "n.running_mean"])},
    }
    model = models.model(nodes, tensors, y=("N", 4), infos=infos)
    trainer = Trainer(model, loss="mse")
    assert list(trainer.get_weights()) == ["w"]
    assert [n.subject for n in trainer.notes if n.kind == "not a weight"] == ["mul", "sub"]
