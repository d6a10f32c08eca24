"""What a batch must be, array by array: converted where nothing is lost, else refused with the name and the row."""

from __future__ import annotations

import numpy as np
import pytest

from onnxgrad.data.arrays import Batch
from onnxgrad.errors import DataError
from onnxgrad.train.step.check import Checker, Expected

FLOAT, INT = np.dtype(np.float32), np.dtype(np.int64)


def x(dims=("N", 3), dtype=FLOAT, **more) -> Expected:
    return Expected("x", "input", np.dtype(dtype), dims, **more)


def t(dims=("N",), dtype=INT, classes=3, axis=1, **more) -> Expected:
    return Expected("t", "target", np.dtype(dtype), dims, classes=classes, axis=axis, **more)


def checked(array, expected: Expected) -> np.ndarray:
    return Checker([expected])(Batch({expected.name: array}, 0))[expected.name]


def ones(*shape, dtype=np.float64) -> np.ndarray:
    return np.ones(shape, dtype)


TAKEN = [
    (ones(2, 3), x(), FLOAT), (ones(2, 3, dtype=np.float16), x(), FLOAT), (ones(2, 3, dtype=FLOAT), x(), FLOAT),
    (ones(2, 3, dtype=np.uint8), x(dtype=INT), INT), (ones(2, 3, dtype=np.int8), x(dtype=np.uint8), np.uint8),
    (np.array([["a", "b", "c"]]), x(dtype=object), object), (ones(2, 3, dtype=bool), x(dtype=bool), bool),
    (ones(0, 3), x(), FLOAT), (ones(7), x(dims=None), FLOAT), (ones(2, 5), x(dims=(None, None)), FLOAT),
    (np.full((2, 3), np.inf), x(), FLOAT), (np.full((2, 3), np.nan), x(gaps=True), FLOAT),
    (np.float32(2), x(dims=()), FLOAT),
    (np.array([0, 2]), t(), INT), (np.array([0, -100]), t(ignore=-100), INT), (np.array([], int), t(), INT),
    (np.array([255], np.uint8), x(dims=("N",), dtype=np.uint8), np.uint8),
    (np.array([0, 255]), x(dims=("N",), dtype=np.uint8), np.uint8),
]  # fmt: skip


@pytest.mark.parametrize(("array", "expected", "dtype"), TAKEN)
def test_taken(array, expected, dtype):
    found = checked(array, expected)
    assert (found.dtype, found.shape) == (np.dtype(dtype), array.shape)
    np.testing.assert_array_equal(found, array)
    assert found.flags.c_contiguous


REFUSED = [
    (ones(2, 3, dtype=int), x(), "input 'x' has type int64, expected float32; convert it with .astype('float32') if"),
    (ones(2, 3), x(dtype=INT), "input 'x' has type float64, expected int64; convert it with .astype('int64') if"),
    (ones(2, 3, dtype=bool), x(), "input 'x' has type bool, expected float32; convert it with"),
    (ones(2, 3), x(dtype=bool), "input 'x' has type float64, expected bool"),
    (np.array([["a"]]), x(), "input 'x' has type <U1, expected float32"),
    (ones(2, 3), x(dtype=object), "input 'x' has type float64, expected object"),
    (np.array([256]), x(("N",), np.uint8), "input 'x' holds values that do not fit into uint8"),
    (np.array([-1]), x(("N",), np.uint8), "input 'x' holds values that do not fit into uint8"),
    (ones(2, 4), x(), "input 'x' has shape [2, 4], expected [N, 3]"),
    (ones(3), x(), "input 'x' has shape [3], expected [N, 3]"),
    (ones(2, 3, 1), x(), "input 'x' has shape [2, 3, 1], expected [N, 3]"),
    (ones(2, 4), x((None, 3)), "input 'x' has shape [2, 4], expected [?, 3]"),
    (ones(2, 3), x((4, 3)), "input 'x' has shape [2, 3], expected [4, 3]; the model's batch size is fixed: use batch"),
    (ones(2, 4), x((4, 3)), "input 'x' has shape [2, 4], expected [4, 3]"),
    (np.array([[1, 2], [3, np.nan]]), x(("N", 2)), "input 'x' holds NaN in row 1 of batch 0"),
    (np.float64("nan"), x(()), "input 'x' holds NaN in row 0 of batch 0"),
    (np.array([0, 3]), t(), "target 't' holds the label 3 in row 1 of batch 0, expected 0 to 2"),
    (np.array([-1, 0]), t(), "target 't' holds the label -1 in row 0 of batch 0, expected 0 to 2"),
    (np.array([-1, 0]), t(ignore=9), "target 't' holds the label -1 in row 0 of batch 0, expected 0 to 2 or 9"),
    (np.zeros((2, 5), int), t(("N", 4), axis=2), "target 't' has shape [2, 5], expected [N, 4]; the classes are taken"),
]  # fmt: skip


@pytest.mark.parametrize(("array", "expected", "said"), REFUSED, ids=[r[2] for r in REFUSED])
def test_refused(array, expected, said):
    with pytest.raises(DataError) as caught:
        checked(array, expected)
    assert str(caught.value).startswith(said)
    assert ("convert it with" in str(caught.value)) == ("convert it with" in said)
    assert ("batch size is fixed" in str(caught.value)) == ("batch size is fixed" in said)


def test_sizes_of_one_name_are_equal():
    both = Checker([x(), t()])
    both(Batch({"x": ones(2, 3), "t": np.array([0, 1])}, 0))
    with pytest.raises(DataError) as caught:
        both(Batch({"x": ones(2, 3), "t": np.array([0, 1, 2])}, 0))
    assert str(caught.value) == "target 't' has shape [3], expected [N] with N = 2 (from 'x')"


def test_what_is_missing_and_what_is_too_much():
    both = Checker([x(), t()])
    with pytest.raises(DataError, match="target 't' is missing; the batch has 'x'"):
        both(Batch({"x": ones(2, 3)}, 0))
    assert set(both(Batch({"x": ones(2, 3)}, 0), optional=["t"])) == {"x"}
    with pytest.raises(DataError, match="input 'x' is missing; the batch has nothing"):
        both(Batch({}, 0))
    with pytest.raises(DataError, match="the batch has 'z', which is no"):
        both(Batch({"x": ones(2, 3), "t": np.array([0, 1]), "z": ones(2)}, 0))


def test_usual_forms_of_targets_are_taken_with_one_note():
    hot = Checker([t()])
    for _ in range(2):
        found = hot(Batch({"t": np.eye(3)[[2, 0]]}, 0))["t"]
        np.testing.assert_array_equal(found, [2, 0])
    assert [n.text for n in hot.notes] == [
        "target 't' is one-hot: the place of the 1 is taken as the label"
    ]
    for wrong in (
        np.array([[1, 1, 0]]),
        np.array([[0, 0, 0]]),
        np.array([[0.5, 0.5, 0]]),
        np.eye(4)[:1],
    ):
        with pytest.raises(DataError, match="target 't' has "):
            Checker([t()])(Batch({"t": wrong}, 0))
    column = Checker([t(("N", 1), FLOAT, classes=None, axis=None)])
    np.testing.assert_array_equal(column(Batch({"t": ones(2)}, 0))["t"], [[1], [1]])
    assert [n.text for n in column.notes] == ["target 't' has shape [2]: taken as a column [N, 1]"]
    with pytest.raises(DataError, match=r"input 'x' has shape \[2\], expected \[N, 1\]"):
        checked(ones(2), x(("N", 1)))


def test_names_and_rows_of_the_data():
    batch = Batch(
        {"t": np.array([0, 9])}, 4, np.array([7, 3]), lambda row: f"line {row + 2}", {"t": "class"}
    )
    with pytest.raises(DataError) as caught:
        Checker([t()])(batch)
    assert str(caught.value) == "target 'class' holds the label 9 in line 5, expected 0 to 2"
