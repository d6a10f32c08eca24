"""The nodes in front of an input: what they compute, what they are called, what is not trained."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxgrad
from onnxgrad.data.columns import as_words, days, far_apart, statistics
from onnxgrad.data.matching import Feed
from onnxgrad.data.table import Table
from onnxgrad.errors import ModelError
from onnxgrad.model.table_input import Columns, TableInput
from onnxgrad.model.trainable import TrainableModel

MEAN, DEVIATION, FILL = np.array([1.0, -2, 3]), np.array([2.0, 4, 0.5]), np.array([7.0, 8, 9])


def model(kind: str = "float") -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g ({kind}[N, 3] x) => ({kind}[N, 2] y) <{kind}[3, 2] w = {{1, 2, 3, 4, 5, 6}}> {{ y = MatMul(x, w) }}""")


def written(change: TableInput, kind: str = "float") -> onnx.ModelProto:
    proto = TrainableModel(model(kind), changes=[change]).source.proto
    onnx.checker.check_model(proto, full_check=True)
    return proto


def run(proto: onnx.ModelProto, **inputs) -> np.ndarray:
    return onnxruntime.InferenceSession(proto.SerializeToString()).run(None, inputs)[0]


@pytest.mark.parametrize("kind", ["float", "double"])
def test_numbers_are_filled_then_standardised(kind):
    dtype = {"float": np.float32, "double": np.float64}[kind]
    x = np.array([[1, 2, 3], [np.nan, 5, np.nan]], dtype)
    w = np.arange(1, 7).reshape(3, 2)
    expected = ((np.where(np.isnan(x), FILL, x) - MEAN) / DEVIATION) @ w
    change = TableInput("x", fill=FILL, mean=MEAN, deviation=DEVIATION)
    np.testing.assert_allclose(run(written(change, kind), x=x), expected, rtol=1e-6)


def test_columns_become_inputs_and_words_numbers():
    change = TableInput("x", columns=Columns(["size", "colour"], [(), ("blue", "red")]))
    proto = written(change)
    assert [i.name for i in proto.graph.input] == ["size", "colour"]
    size = np.array([[10], [10], [10]], np.float32)
    colour = np.array([["blue"], ["red"], ["pink"]], object)
    rows = np.array([[10, 1, 0], [10, 0, 1], [10, 0, 0]])
    np.testing.assert_allclose(
        run(proto, size=size, colour=colour), rows @ np.arange(1, 7).reshape(3, 2)
    )


def test_only_the_weights_are_trained():
    change = TableInput("x", fill=FILL, mean=MEAN, deviation=DEVIATION)
    trainer = onnxgrad.Trainer(model(), loss="mse", changes=[change])
    assert list(trainer.get_weights()) == ["w"]
    # and of the written file, which knows nothing of the change
    assert list(onnxgrad.Trainer(written(change), loss="mse").get_weights()) == ["w"]


def test_nan_is_missing_only_where_something_fills_it():
    x = np.array([[1, np.nan, 3]], np.float32)
    batch = {"x": x, "target": np.zeros((1, 2), np.float32)}
    filled = onnxgrad.Trainer(model(), loss="mse", changes=[TableInput("x", fill=FILL)])
    assert np.isfinite(filled.step(batch)["loss"])
    with pytest.raises(onnxgrad.errors.DataError, match="input 'x' holds NaN"):
        onnxgrad.Trainer(model(), loss="mse").step(batch)


def test_a_column_named_like_a_tensor_is_refused():
    change = TableInput("x", columns=Columns(["w", "b", "c"], [(), (), ()]))
    with pytest.raises(ModelError, match="column 'w' has the name of a tensor of the model"):
        written(change)


def test_an_unknown_input_is_refused():
    with pytest.raises(ModelError, match="no input 'z'"):
        written(TableInput("z", mean=MEAN))


# ---- statistics


def test_statistics_are_those_of_the_rows_and_skip_gaps():
    rng = np.random.default_rng(0)
    x = rng.normal(1e6, 1, (10_000, 2))  # far from zero: squares alone would lose the spread
    x[5, 0] = np.nan
    table = Table("d", {"a": x[:, 0], "b": x[:, 1]})
    feed = Feed(["a", "b"], (2,), np.dtype(np.float64))
    rows = np.arange(0, 9_000)
    found = statistics(table, feed, rows)
    np.testing.assert_allclose(found.mean, np.nanmean(x[:9000], 0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, np.nanstd(x[:9000], 0), rtol=1e-6)
    np.testing.assert_allclose(found.median, np.nanmedian(x[:9000], 0), rtol=1e-12)


def test_cells_as_words_and_dates_as_days():
    assert as_words(np.array([1.0, np.nan, 2.5])).tolist() == ["1", "", "2.5"]
    assert as_words(np.array([7, 8])).tolist() == ["7", "8"]
    found = days(np.array(["1970-01-02", "1970-01-03 12:00", ""]), "d.csv")
    np.testing.assert_allclose(found, [1, 2.5, np.nan])


def test_columns_far_apart():
    assert far_apart(np.array([1.0, 500, 0, 2])) == (0, 1)
    assert far_apart(np.array([1.0, 50])) is None
