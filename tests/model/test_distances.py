"""Biases that were looked up by the distance of two places train as the table; what only looks so does not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from model import merged_models as models

from onnxgrad import Trainer
from onnxgrad.model.distances import by_distance
from onnxgrad.model.trainable import TrainableModel

RNG = np.random.default_rng(3)


def along_diagonals(numbers: np.ndarray) -> np.ndarray:
    """One number for every distance of places in a row."""
    places = np.arange((numbers.shape[-1] + 1) // 2)
    return numbers[..., places[:, None] - places + len(places) - 1]


def of_window(rows: int, columns: int) -> np.ndarray:
    y, x = np.divmod(np.arange(rows * columns), columns)
    table = RNG.normal(size=(2, 2 * rows - 1, 2 * columns - 1))
    return table[:, y[:, None] - y + rows - 1, x[:, None] - x + columns - 1]


LEARNED = {
    "a sequence": (along_diagonals(RNG.normal(size=(2, 11))), 11),
    "a sequence, a single head": (along_diagonals(RNG.normal(size=7)), 7),
    "a sequence whose far places share a number": (
        along_diagonals(RNG.normal(size=(2, 6))[:, [0, 0, 0, 1, 2, 3, 4, 5, 5, 5, 5]]),
        6,
    ),
    "a window": (of_window(3, 2), 15),
    "a square window": (of_window(2, 2)[None], 9),
}
OTHERS = {
    "random": RNG.normal(size=(2, 6, 6)),
    "the identity": np.eye(6) * 0.3,
    "a band of ones": np.eye(6) + np.eye(6, k=1),
    "equal elements": np.ones((4, 4)),
    "three places": along_diagonals(RNG.normal(size=5)),
    "no square": RNG.normal(size=(6, 5)),
}


@pytest.mark.parametrize("title", LEARNED)
def test_tables_of_distances_are_found(title):
    array, count = LEARNED[title]
    index = by_distance(array)
    assert index.max() + 1 == len(np.unique(index)) == count


@pytest.mark.parametrize("title", OTHERS)
def test_other_matrices_are_not(title):
    assert by_distance(OTHERS[title]) is None


def added(array: np.ndarray, name: str):
    """A model that adds an array to a product."""
    nodes = [models.node("MatMul", "x w", "h"), models.node("Add", f"h {name}", "y")]
    tensors = {"w": models.normal(6, 6), name: array.astype(np.float32)}
    return models.model(nodes, tensors, x=("N", 6, 6), y=("N", 6, 6))


def test_the_diagonals_stay_equal_and_are_written():
    model = added(along_diagonals(RNG.normal(size=11)), "onnx::Add_5")
    trainer = Trainer(model, loss="mse", optimizer="sgd", lr=0.5)
    x = RNG.normal(size=(3, 6, 6)).astype(np.float32)
    trainer.step(x, np.abs(x))
    assert trainer.get_weights()["onnx::Add_5"].shape == (11,)
    (note,) = [n for n in trainer.notes if n.kind == "repeated"]
    assert note.text == (
        "tensor 'onnx::Add_5' of shape [6, 6] was looked up by the distances of 6 places: it trains as the numbers of "
        "11 distances"
    )


def test_heads_that_repeat_for_every_element_of_a_batch_are_one_row_each(tmp_path):
    """WavLM repeats its biases for the batch that it was exported with, and merges the two axes."""
    heads = along_diagonals(RNG.normal(size=(2, 11)))
    nodes = [models.node("MatMul", "x w", "h"), models.node("Add", "h view", "y")]
    tensors = {"w": models.normal(6, 6), "view": np.tile(heads, (3, 1, 1)).astype(np.float32)}
    infos = {"view": {models.FOLDED: "['bias.weight', 'embedding', 'repeat', 'val_1']"}}
    model = models.model(nodes, tensors, x=(6, 6, 6), y=(6, 6, 6), infos=infos)
    trainer = Trainer(model, loss="mse", optimizer="sgd", lr=0.5)
    x = RNG.normal(size=(6, 6, 6)).astype(np.float32)
    before = trainer.predict(x)
    np.testing.assert_allclose(before, x @ tensors["w"] + tensors["view"], atol=1e-5)
    trainer.step(x, np.abs(x))
    weights = trainer.get_weights()["view"]
    assert weights.shape == (2, 11)
    trainer.save(tmp_path / "tuned.onnx")
    written = onnx.load(tmp_path / "tuned.onnx").graph.initializer
    (found,) = [onnx.numpy_helper.to_array(t) for t in written if t.name == "view"]
    assert found.shape == (6, 6, 6)
    np.testing.assert_array_equal(found[:2], found[2:4])
    assert np.abs(found - tensors["view"]).max() > 1e-4


@pytest.mark.parametrize(
    ("name", "array", "kind"),
    [
        ("own.table", along_diagonals(RNG.normal(size=11)), "weight"),
        ("onnx::Add_5", along_diagonals(-np.abs(np.arange(-5, 6)) * 0.3), "table"),
    ],
)
def test_named_parameters_and_slopes_stay_as_they_are(name, array, kind):
    found = {t.name: t for t in TrainableModel(added(array, name)).tensors()}
    assert (found[name].kind, found[name].shape) == (kind, (6, 6))
