"""Normalisations whose exact gradient is 0: equal cotangents, rows of one element. A relative measure says nothing
about them, so they are not in the tables of cases; here the error is held against the terms that cancel.
"""

from __future__ import annotations

import numpy as np
import pytest

from onnxgrad import kernels
from onnxgrad.contracts import contracts

RNG = np.random.default_rng(7)
IMAGES = (3, 4, 5, 7)
both = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])


def assert_cancelled(op: str, dx: np.ndarray, terms: np.ndarray) -> None:
    """|dX| within the promised error of the largest term."""
    accuracy = contracts()[op].accuracy
    bound = accuracy.float32 if dx.dtype == np.float32 else accuracy.float64
    assert np.abs(dx).max() <= bound * np.abs(terms).max(), f"{op}: {np.abs(dx).max():.3g}"


@both
def test_layer_normalization_of_one_element(dtype):
    dy, x = (RNG.normal(size=(9, 1)).astype(dtype) for _ in range(2))
    inverse = np.full((9, 1), 1 / np.sqrt(1e-5), dtype)
    dx, dscale, dbias = kernels.layer_normalization_grad(dy, x, np.ones(1, dtype), x, inverse)
    assert_cancelled("LayerNormalizationGrad", dx, dy * inverse)
    assert dscale[0] == 0
    np.testing.assert_allclose(dbias, dy.sum(0), rtol=1e-6)


@both
def test_layer_normalization_of_equal_cotangents(dtype):
    x = RNG.normal(size=(6, 50)).astype(dtype)
    mean = x.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(x.var(-1, keepdims=True) + dtype(1e-5))
    dx, _, _ = kernels.layer_normalization_grad(
        np.ones_like(x), x, np.ones(50, dtype), mean, inverse
    )
    assert_cancelled("LayerNormalizationGrad", dx, np.broadcast_to(inverse, x.shape))


@both
@pytest.mark.parametrize("op", ["GroupNormalizationGrad", "InstanceNormalizationGrad"])
def test_channel_normalization_of_equal_cotangents(op, dtype):
    x, ones = RNG.normal(size=IMAGES).astype(dtype), np.ones(IMAGES, dtype)
    kernel = getattr(kernels, contracts()[op].python_name)
    more = {"num_groups": 2} if op.startswith("Group") else {}
    dx, dscale, dbias = kernel(ones, x, np.ones(4, dtype), **more)
    assert_cancelled(op, dx, 1 / x.std((2, 3)))
    np.testing.assert_array_equal(dbias, np.full(4, 3 * 5 * 7, dtype))
    if not more:
        assert_cancelled(op, dscale, np.full(4, 3 * 5 * 7.0))


@both
@pytest.mark.parametrize("op", ["GroupNormalizationGrad", "InstanceNormalizationGrad"])
def test_channel_normalization_of_equal_numbers(op, dtype):
    x, ones = np.full((1, 1, 63, 63), 0.01, dtype), np.ones((1, 1, 63, 63), dtype)
    kernel = getattr(kernels, contracts()[op].python_name)
    more = {"num_groups": 1} if op.startswith("Group") else {}
    dx, dscale, dbias = kernel(ones, x, np.ones(1, dtype), **more)
    assert not dx.any()
    assert not dscale.any()
    assert dbias[0] == 63 * 63


@both
def test_batch_normalization_of_equal_cotangents(dtype):
    x = RNG.normal(size=IMAGES).astype(dtype)
    mean, inverse = x.mean((0, 2, 3)), 1 / np.sqrt(x.var((0, 2, 3)) + dtype(1e-5))
    dx, dscale, dbias = kernels.batch_normalization_grad(
        np.ones_like(x), x, np.ones(4, dtype), mean, inverse
    )
    assert_cancelled("BatchNormalizationGrad", dx, inverse)
    assert_cancelled("BatchNormalizationGrad", dscale, np.full(4, 3 * 5 * 7.0))
    np.testing.assert_array_equal(dbias, np.full(4, 3 * 5 * 7, dtype))
