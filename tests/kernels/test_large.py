"""Tensors larger than the last cache. Kernels write them past the caches, by code that the tables of cases, whose
tensors are small, do not reach: right, and the same bits wherever in memory they lie and whoever computes.
"""

from __future__ import annotations

import numpy as np
import pytest
from cases.case import Case
from cases.samples import exactly, integers, log_simplex, normal, simplex, uniform
from ort_models import run_onnxruntime

from onnxgrad import kernels
from onnxgrad.contracts import contracts

ODD = (3_209, 1_003)  # neither is a whole number of registers
EVEN = (3_072, 1_024)
COLUMNS = (40, 1_024, 80)  # softmax along the middle: stripes of 64, and a rest
STRIPES = (40, 1_021, 64)  # no rest: the next stripe is summed while one is written
SHORT_STRIPES = (20_001, 2, 64)
IMAGES = (4, 48, 129, 130)


def shape(*dims):
    return exactly(np.array(dims, np.int64))


def mask(*dims):
    return lambda rng: rng.random(dims) < 0.5


def every_float(low, high):
    """All float32 numbers between two of one sign, the one nearer to 0 included."""
    ends = sorted(int(np.float32(x).view(np.int32)) & 0x7FFFFFFF for x in (low, high))
    magnitudes = np.arange(*ends, dtype=np.int32).view(np.float32)
    return exactly(np.copysign(magnitudes, np.float32(low)))


LARGE = [
    ("ReluGrad", Case("rows", dY=normal(*ODD), X=normal(*ODD))),
    ("TanhGrad", Case("whole registers", dY=normal(*EVEN), Y=uniform(*EVEN))),
    ("FastGeluGrad", Case("every number from -2 to -1", dY=exactly(np.ones(1 << 23)), X=every_float(-2, -1))),
    ("BiasFastGeluGrad_dX", Case("rows", dY=normal(*ODD), X=normal(*ODD), B=normal(ODD[1]))),
    ("SoftmaxGrad_13", Case("rows", dY=normal(*ODD), Y=simplex(*ODD))),
    ("SoftmaxGrad_13", Case("whole registers", dY=normal(*EVEN), Y=simplex(*EVEN))),
    ("SoftmaxGrad_13", Case("columns", dY=normal(*COLUMNS), Y=simplex(*COLUMNS, axis=1), axis=1)),
    ("SoftmaxGrad_13", Case("whole stripes", dY=normal(*STRIPES), Y=simplex(*STRIPES, axis=1), axis=1)),
    ("SoftmaxGrad_13", Case("short stripes", dY=normal(*SHORT_STRIPES), Y=simplex(*SHORT_STRIPES, axis=1), axis=1)),
    ("LogSoftmaxGrad_13", Case("rows", dY=normal(*ODD), Y=log_simplex(*ODD))),
    ("LogSoftmaxGrad_13", Case("whole registers", dY=normal(*EVEN), Y=log_simplex(*EVEN))),
    ("LogSoftmaxGrad_13", Case("columns", dY=normal(*COLUMNS), Y=log_simplex(*COLUMNS, axis=1), axis=1)),
    ("LogSoftmaxGrad_13", Case("whole stripes", dY=normal(*STRIPES), Y=log_simplex(*STRIPES, axis=1), axis=1)),
    ("DropoutGrad", Case("rows", dy=normal(*ODD), mask=mask(*ODD))),
    ("LayerNormalizationGrad",
     Case("rows", Y_grad=normal(*ODD), X=normal(*ODD), scale=normal(ODD[1]), mean=normal(ODD[0], 1, spread=0.1),
          inv_std_dev=uniform(ODD[0], 1, low=0.5, high=2.0))),
    ("BatchNormInternal",
     Case("images", X=normal(*IMAGES), scale=normal(48), B=normal(48), input_mean=normal(48),
          input_var=uniform(48, low=0.5, high=2.0), outputs=("Y",))),
    ("BatchNormalizationGrad",
     Case("images", dY=normal(*IMAGES), X=normal(*IMAGES), scale=normal(48), mean=normal(48, spread=0.1),
          variance=uniform(48, low=0.5, high=2.0))),
    ("GroupNormalizationGrad",
     Case("images", dY=normal(*IMAGES), X=normal(*IMAGES), scale=normal(48), num_groups=8)),
    ("InstanceNormalizationGrad", Case("images", dY=normal(*IMAGES), X=normal(*IMAGES), scale=normal(48))),
    ("SoftmaxCrossEntropyLossInternal",
     Case("rows", scores=normal(*ODD), labels=integers(ODD[0], high=ODD[1]))),
    ("SoftmaxCrossEntropyLossGrad",
     Case("rows", dY=normal(), log_prob=log_simplex(*ODD), label=integers(ODD[0], high=ODD[1]))),
    ("SliceGrad",
     Case("rows", dY=normal(3_000, 501), shape=shape(*ODD), starts=shape(9, 502), ends=shape(3_009, 1_003))),
    ("GatherGrad",
     Case("rows", shape=shape(6_403, 1_003), indices=integers(200, high=6_403), dY=normal(200, 1_003))),
    ("GatherElementsGrad",
     Case("rows", dY=normal(6_403, 4), shape=shape(6_403, 1_003), indices=integers(6_403, 4, high=1_003), axis=1)),
]  # fmt: skip

large = pytest.mark.parametrize("case", [case.of(contracts()[op]) for op, case in LARGE], ids=str)


def shifted(array: np.ndarray, elements: int) -> np.ndarray:
    """An empty array like this one that begins `elements` behind a cache line."""
    raw = np.empty(array.nbytes + 128, np.uint8)
    begin = -raw.ctypes.data % 64 + elements * array.itemsize
    return raw[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)


@pytest.fixture(autouse=True)
def two_threads():
    kernels.set_num_threads(2)


@large
def test_right(case):
    case.assert_close(case.run_numpy(np.float32), np.float32)


@large
def test_the_same_bits_wherever_they_lie_and_whoever_computes(case):
    expected = case.run_numpy(np.float32)
    results = {"in onnxruntime": run_onnxruntime(case, np.float32, threads=2)}
    for elements in (0, 1):
        out = {name: shifted(a, elements) for name, a in expected.items()}
        results[f"{elements} behind a cache line"] = case.run_numpy(np.float32, out=out)
    kernels.set_num_threads(1)
    results["on one thread"] = case.run_numpy(np.float32)
    for how, result in results.items():
        for name, array in expected.items():
            assert result[name].tobytes() == array.tobytes(), f"{name} differs {how}"


@large
def test_the_same_bits_over_the_memory_of_an_input(case):
    if case.contract.inplace is None:
        pytest.skip("the kernel may not write over an input")
    source, target = case.contract.inplace
    inputs = case.inputs(np.float32)
    source, target = case.contract.inputs[source].name, case.contract.outputs[target].name
    own = shifted(inputs[source], 0)
    own[...] = inputs[source]
    kernel = getattr(kernels, case.contract.python_name)
    expected = kernel(**inputs, **case.attributes)
    if len(case.contract.outputs) > 1:
        expected = getattr(expected, target)
    kernel(**{**inputs, source: own}, **case.attributes, out={target: own})
    assert own.tobytes() == expected.tobytes()
