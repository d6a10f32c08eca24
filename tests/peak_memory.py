"""How much memory a call of each pointwise and softmax gradient needs beyond what is there before it: a program by
itself, in a process without free memory that a call could use unseen. Prints a JSON object, bytes by case.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from cases.case import Case
from cases.samples import log_simplex, normal, simplex, uniform
from ort_models import node_model

import onnxgrad
from onnxgrad import kernels
from onnxgrad.contracts import contracts

ROWS, SLABS = (4_096, 1_024), (64, 1_024, 64)
TENSOR = 16 << 20  # bytes, in either shape
COPY = "a copy of a tensor"
# glibc takes allocations of more than this from the system, and gives them back at once.
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}


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


def resident(field: str) -> int:
    """Bytes in memory: VmRSS now, VmHWM at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(t for t in lines if t.startswith(field)).split()[1]) << 10


def peak_of(call: Callable) -> int:
    """How many bytes more than before were in memory at some moment of the call."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident("VmRSS")
    call()
    return resident("VmHWM") - before


def call_on_numpy(case: Case, inputs: dict, out: np.ndarray) -> Callable:
    kernel = getattr(kernels, case.contract.python_name)
    return lambda: kernel(**inputs, **case.attributes, out=out)


def call_in_onnxruntime(case: Case, inputs: dict, out: np.ndarray) -> Callable:
    model = node_model(case.contract, inputs, case.attributes, ["dX"])
    session = onnxgrad.session(model, threads=2)
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("dX", "cpu", 0, out.dtype, out.shape, out.ctypes.data)
    return lambda: session.run_with_iobinding(binding)


def peaks(call_of: Callable) -> dict[str, int]:
    tensor = np.ones(ROWS, np.float32)
    found = {COPY: peak_of(tensor.copy)}
    kernels.set_num_threads(2)
    for op, case in CASES:
        bound = case.of(contracts()[op])
        inputs = bound.inputs(np.float32)
        out = np.ones_like(inputs["dY"])
        found[str(bound)] = peak_of(call_of(bound, inputs, out))
    return found


if __name__ == "__main__":
    hosts = {"numpy": call_on_numpy, "onnxruntime": call_in_onnxruntime}
    print(json.dumps(peaks(hosts[sys.argv[1]])))
