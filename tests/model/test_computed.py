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
