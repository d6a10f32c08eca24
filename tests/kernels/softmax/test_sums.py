"""Sums of terms that cancel, beside one large probability that hands on all of their error: exact sums judge."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onnxgrad import kernels
from onnxgrad.contracts import contracts

LENGTHS = [3, 15, 1_000, 1_024, 1_025, 10_000, 50_257, 140_000]  # the last one in blocks
lengths = pytest.mark.parametrize("length", LENGTHS)
both = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
RNG = np.random.default_rng(5)


def confident(length: int) -> np.ndarray:
    """Probabilities of which the first is 0.9."""
    y = np.full(length, 0.1 / (length - 1))
    y[0] = 0.9
    return y


def alternating(length: int) -> np.ndarray:
    """Cotangents of changing signs; that of the likely class is 0."""
    dy = RNG.uniform(0.5, 1.5, length) * (-1.0) ** np.arange(length)
    dy[0] = 0
    return dy


def exact_sum(terms: np.ndarray) -> np.longdouble:
    """Exact for terms in double; those in long double are split into two."""
    high = terms.astype(np.float64)
    return np.longdouble(math.fsum([*high, *(terms - high).astype(np.float64)]))


def columns_of(row: np.ndarray) -> np.ndarray:
    """The row as each of 70 columns: a whole stripe, and a rest."""
    return np.ascontiguousarray(np.repeat(row[:, None], 70, axis=1))


def assert_close(op: str, found: np.ndarray, expected: np.ndarray, largest) -> None:
    accuracy = contracts()[op].accuracy
    bound = accuracy.float32 if found.dtype == np.float32 else accuracy.float64
    if found.ndim == 2:
        expected = expected[:, None]
    assert np.abs(found - expected).max() <= bound * largest


def softmax(y: np.ndarray, dy: np.ndarray):
    """dX, and the largest term."""
    y, dy = y.astype(np.longdouble), dy.astype(np.longdouble)
    total = exact_sum(y * dy)
    return y * (dy - total), np.max(y * (np.abs(dy) + np.abs(total)))


def log_softmax(y: np.ndarray, dy: np.ndarray):
    y, dy = y.astype(np.longdouble), dy.astype(np.longdouble)
    total = exact_sum(dy)
    return dy - np.exp(y) * total, np.max(np.abs(dy) + np.exp(y) * np.abs(total))


def softmax_bound(y: np.ndarray, dy: np.ndarray, largest) -> np.longdouble:
    """In float32, up to 1,024 terms are summed in float32: within a quarter of an eps of all of them together."""
    bound = (1e-6 if y.dtype == np.float32 else 1e-13) * largest
    short = y.dtype == np.float32 and len(y) <= 1_024
    return max(bound, short * np.finfo(np.float32).eps / 4 * np.abs(y * dy).sum())


@both
@lengths
def test_softmax_of_a_row(length, dtype):
    y, dy = confident(length).astype(dtype), alternating(length).astype(dtype)
    expected, largest = softmax(y, dy)
    for found in (kernels.softmax_grad_13(dy, y), kernels.softmax_grad(dy, y, axis=0)):
        assert np.abs(found - expected).max() <= softmax_bound(y, dy, largest)


@both
@lengths
def test_log_softmax_of_a_row(length, dtype):
    y, dy = np.log(confident(length)).astype(dtype), (1e6 * alternating(length)).astype(dtype)
    expected, largest = log_softmax(y, dy)
    assert_close("LogSoftmaxGrad_13", kernels.log_softmax_grad_13(dy, y), expected, largest)
    assert_close("LogSoftmaxGrad", kernels.log_softmax_grad(dy, y, axis=0), expected, largest)


@both
@lengths
def test_softmax_of_columns(length, dtype):
    y, dy = confident(length).astype(dtype), alternating(length).astype(dtype)
    found = kernels.softmax_grad_13(columns_of(dy), columns_of(y), axis=0)
    expected, largest = softmax(y, dy)
    assert np.abs(found - expected[:, None]).max() <= softmax_bound(y, dy, largest)


@both
@lengths
def test_log_softmax_of_columns(length, dtype):
    y, dy = np.log(confident(length)).astype(dtype), (1e6 * alternating(length)).astype(dtype)
    found = kernels.log_softmax_grad_13(columns_of(dy), columns_of(y), axis=0)
    assert_close("LogSoftmaxGrad_13", found, *log_softmax(y, dy))
