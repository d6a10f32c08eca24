"""The pointwise and softmax gradients need no memory but that of dX: nothing that grows with the tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cases.case import Case
from cases.samples import log_simplex, normal, simplex, uniform
from ort_models import node_model

import onnxgrad
from onnxgrad import kernels
from onnxgrad.contracts import contracts

ROWS, SLABS = (4_096, 1_024), (64, 1_024, 64)  # 16 MB each
CONSTANT = 4 << 20  # stacks of threads and the like; systems count pages in batches
CLEAR, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def two(second: str, sample, shape=ROWS, **attributes) -> Case:
    title = "middle axis" if shape is SLABS else "rows"
    return Case(title, dY=normal(*shape), **{second: sample}, **attributes)


CASES = [
    *((op, two("X", normal(*ROWS))) for op in ("ReluGrad", "GeluGrad", "FastGeluGrad", "QuickGeluGrad")),
    *((op, two("Y", uniform(*ROWS))) for op in ("SigmoidGrad", "TanhGrad", "LeakyReluGrad")),
    *((op, Case("rows", dY=normal(*ROWS), X=normal(*ROWS), B=normal(ROWS[1])))
      for op in ("BiasGeluGrad_dX", "BiasFastGeluGrad_dX")),
    ("SoftmaxGrad", two("Y", simplex(*ROWS))),
    ("SoftmaxGrad_13", two("Y", simplex(*ROWS))),
    ("SoftmaxGrad_13", two("Y", simplex(*SLABS, axis=1), SLABS, axis=1)),
    ("LogSoftmaxGrad", two("Y", log_simplex(*ROWS))),
    ("LogSoftmaxGrad_13", two("Y", log_simplex(*ROWS))),
    ("LogSoftmaxGrad_13", two("Y", log_simplex(*SLABS, axis=1), SLABS, axis=1)),
]  # fmt: skip

each_case = pytest.mark.parametrize(
    "case", [case.of(contracts()[op]) for op, case in CASES], ids=str
)


def resident(field: str) -> int:
    """Bytes in memory: VmRSS now, VmHWM at most."""
    line = next(t for t in STATUS.read_text().splitlines() if t.startswith(field))
    return int(line.split()[1]) << 10


def peak_of(call: Callable) -> int:
    """How many bytes more than before were in memory at some moment of the call."""
    try:
        CLEAR.write_text("5")  # the peak begins anew
    except OSError:
        pytest.skip("this system does not tell how much memory a call needs")
    before = resident("VmRSS")
    call()
    return resident("VmHWM") - before


@pytest.fixture(autouse=True)
def two_threads():
    kernels.set_num_threads(2)


def test_the_measure_sees_a_copy():
    array = np.ones(ROWS, np.float32)
    assert peak_of(lambda: float(array.copy()[0, 0])) > array.nbytes - CONSTANT


@each_case
def test_no_more_than_the_output_on_numpy(case):
    inputs = case.inputs(np.float32)
    out = np.ones_like(inputs["dY"])
    kernel = getattr(kernels, case.contract.python_name)
    assert peak_of(lambda: kernel(**inputs, **case.attributes, out=out)) < CONSTANT


@each_case
def test_no_more_than_the_output_in_onnxruntime(case):
    inputs = case.inputs(np.float32)
    out = np.ones_like(inputs["dY"])
    model = node_model(case.contract, inputs, case.attributes, ["dX"])
    session = onnxgrad.session(model, threads=2)
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("dX", "cpu", 0, out.dtype, out.shape, out.ctypes.data)
    assert peak_of(lambda: session.run_with_iobinding(binding)) < CONSTANT
