"""Data of other libraries, by look-alikes that have what those offer; tests/live has the real ones."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxgrad
from onnxgrad.data.foreign import columns_of
from onnxgrad.errors import DataError

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)


class Table:
    """As `datasets.Dataset`: columns, formats, rows by a list of numbers."""

    def __init__(self, columns):
        self.columns, self.asked = columns, []

    @property
    def column_names(self):
        return list(self.columns)

    def with_format(self, kind, columns=None):
        assert kind == "numpy"
        made = Table({n: self.columns[n] for n in columns})
        made.asked = self.asked
        return made

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, rows):
        assert isinstance(rows, list)
        self.asked.append(rows)
        return {name: column[rows] for name, column in self.columns.items()}


class Tensor:
    """As PyTorch's: NumPy takes it only after detach and cpu."""

    def __init__(self, array, detached=False):
        self.array, self.detached = array, detached

    def detach(self):
        return Tensor(self.array, True)

    def cpu(self):
        return self

    def numpy(self):
        assert self.detached
        return self.array

    def __array__(self, *_, **__):
        raise RuntimeError("call detach first")


class Loader:
    """As PyTorch's DataLoader: a length, and new batches for every pass."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(self.batches)


def trainer():
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        line (float[N, 3] x) => (float[N, 2] y) { y = MatMul(x, w) }""")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((3, 2), np.float32), "w"))
    return onnxgrad.Trainer(
        model, loss="cross_entropy", optimizer="sgd", lr=0.1, metrics="accuracy"
    )


def weights_after(*data, **more):
    one = trainer()
    one.fit(*data, epochs=2, batch_size=8, **more)
    return one.get_weights()["w"]


def test_a_dataset_trains_as_its_arrays_do_and_is_read_by_batches():
    table = Table({"id": np.arange(40), "x": X, "label": Y})
    np.testing.assert_array_equal(weights_after(table), weights_after(X, Y))
    assert [len(rows) for rows in table.asked] == [8] * 10
    one = trainer()
    assert one.evaluate(table) == one.evaluate(X, Y)


def test_validation_may_be_a_dataset():
    one = trainer()
    history = one.fit(X, Y, validation=Table({"x": X, "labels": Y}), epochs=1)
    assert "val_accuracy" in history.epochs[0]


@pytest.mark.parametrize(
    "batch", [lambda x, y: [x, y], lambda x, y: (x, y), lambda x, y: {"x": x, "labels": y}]
)
def test_a_loader_of_tensors_trains_as_its_arrays_do(batch):
    parts = [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 40, 8)]
    loader = Loader([batch(Tensor(x), Tensor(y)) for x, y in parts])
    np.testing.assert_array_equal(weights_after(loader), weights_after(X, Y, shuffle=False))


def test_tensors_are_taken_as_arrays():
    np.testing.assert_array_equal(weights_after(Tensor(X), Tensor(Y)), weights_after(X, Y))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["x", "target"], {"x": "x", "target": "target"}),
        (["label", "x", "id"], {"x": "x", "target": "label"}),
        (["pixels", "label"], {"x": "pixels", "target": "label"}),
        (["x", "kind"], {"x": "x", "target": "kind"}),
    ],
)
def test_columns_find_their_places(given, found):
    assert columns_of(given, ("x",), ("target",)) == found


@pytest.mark.parametrize("given", [["a", "b", "label"], ["x", "a", "b"], []])
def test_columns_without_a_place_are_refused_by_name(given):
    with pytest.raises(
        DataError, match=r"no column of the dataset is the (input 'x'|target 'target')"
    ):
        columns_of(given, ("x",), ("target",))
