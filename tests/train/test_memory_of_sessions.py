"""Frozen weights are in memory once, however many sessions read them."""

from __future__ import annotations

import numpy as np
from model import merged_models as models

from onnxgrad import Trainer
from onnxgrad.train.step import build


def base() -> object:
    nodes = [models.node("MatMul", "x a", "h"), models.node("MatMul", "h b", "y")]
    tensors = {"a": models.normal(4, 1 << 14), "b": models.normal(1 << 14, 2)}
    return models.model(nodes, tensors, y=("N", 2))


def test_training_and_evaluation_read_the_same_array():
    plan = Trainer(base(), loss="mse", trainable="head")._plan
    tensors = plan.store.tensors()
    again, _, _ = build.evaluation_graph(plan.base.clone(), None, tensors)
    assert list(again.held) == list(plan.graph.model.held) == ["a"]
    assert np.shares_memory(again.held["a"], plan.graph.model.held["a"])


def test_what_is_trained_is_not_kept_beside_its_buffers():
    trainer = Trainer(base(), loss="mse")
    held = trainer._plan.base.graph.initializers["a"].const_value
    assert held.numpy() is not held.numpy()  # read from the file, whenever somebody asks
