"""Every case of every operator: right, and with the same bits in both hosts and on any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from cases import every_case
from cases.case import DTYPES
from ort_models import run_onnxruntime

from onnxgrad import kernels

cases = pytest.mark.parametrize("case", every_case(), ids=str)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=["f32", "f64"])


@pytest.fixture(autouse=True)
def two_threads():
    kernels.set_num_threads(2)


def assert_same_bits(got: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, array in expected.items():
        assert got[name].shape == array.shape
        assert got[name].tobytes() == array.tobytes(), f"{name} differs"


@cases
@dtypes
def test_numpy_host_matches_reference(case, dtype):
    case.assert_close(case.run_numpy(dtype), dtype)


@cases
@dtypes
def test_onnxruntime_gives_the_same_bits(case, dtype):
    assert_same_bits(run_onnxruntime(case, dtype, threads=2), case.run_numpy(dtype))


@cases
def test_every_number_of_threads_gives_the_same_bits(case):
    results = []
    for count in (1, 2, 5):
        kernels.set_num_threads(count)
        results.append(case.run_numpy(np.float32))
    assert_same_bits(results[1], results[0])
    assert_same_bits(results[2], results[0])
