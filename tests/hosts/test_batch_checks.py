"""What every batch is asked: NaN, and the range of labels, by our own functions and by NumPy where they do not read."""

from __future__ import annotations

import numpy as np
import pytest

from onnxgrad import _native
from onnxgrad.data.arrays import Batch
from onnxgrad.errors import DataError
from onnxgrad.train.step.check import Checker, Expected

SIZES = (1, 2, 15, 16, 17, 33, 1000)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_nan_is_found_wherever_it_stands(dtype):
    for size in SIZES:
        x = np.random.default_rng(size).normal(size=size).astype(dtype)
        x[0] = np.inf  # which is a number
        assert not _native.holds_nan(x)
        for at in {0, size // 2, size - 1}:
            y = x.copy()
            y[at] = np.nan
            assert _native.holds_nan(y)
    assert not _native.holds_nan(np.zeros((0, 3), dtype))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_range_of_labels(dtype):
    for size in SIZES:
        x = np.random.default_rng(size).integers(-50, 50, size).astype(dtype)
        assert _native.least_and_largest(x) == (x.min(), x.max())
    ends = np.iinfo(dtype)
    assert _native.least_and_largest(np.array([[ends.max, ends.min]], dtype)) == (
        ends.min,
        ends.max,
    )
    assert _native.least_and_largest(np.zeros(0, dtype)) == (0, 0)


@pytest.mark.parametrize(
    "wrong", [np.zeros(3, np.int64), np.zeros(3, ">f4"), np.zeros((3, 4))[:, 1], "text"]
)
def test_what_is_not_read_is_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        _native.holds_nan(wrong)
    if not isinstance(wrong, np.ndarray) or wrong.dtype != np.int64:
        with pytest.raises(ValueError, match="expected"):
            _native.least_and_largest(wrong)


def _judge(array, **more):
    expected = Expected("x", "target", array.dtype, None, **more)
    Checker([expected])(Batch({"x": array}, 3))


def _forms(array):
    """The same numbers as they may lie: plain, read-only, in columns, every second one."""
    locked = array.copy()
    locked.flags.writeable = False
    apart = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)[..., ::2]
    apart[...] = array
    return [array, locked, np.asfortranarray(array), apart]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nan_in_every_form_of_an_array(dtype):
    x = np.arange(12, dtype=dtype).reshape(4, 3)
    for form in _forms(x):
        _judge(form)
    x[2, 1] = np.nan
    for form in _forms(x):
        with pytest.raises(DataError, match="holds NaN in row 2 of batch 3"):
            _judge(form)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8])
def test_labels_in_every_form_of_an_array(dtype):
    x = np.arange(12, dtype=dtype).reshape(4, 3)
    for form in _forms(x):
        _judge(form, classes=12)
        with pytest.raises(
            DataError, match="holds the label 11 in row 3 of batch 3, expected 0 to 10"
        ):
            _judge(form, classes=11)
        _judge(form, classes=11, ignore=11)
