"""The pointwise and softmax gradients need no memory but that of dX: nothing that grows with the tensors."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import peak_memory
import pytest
from places import TESTS

CONSTANT = peak_memory.TENSOR // 8  # stacks of threads and the like; systems count pages in batches


@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK),
    reason="this system does not tell how much memory a call needs",
)
@pytest.mark.parametrize("host", ["numpy", "onnxruntime"])
def test_no_more_than_the_output(host):
    done = subprocess.run(
        [sys.executable, TESTS / "peak_memory.py", host],
        env={**os.environ, **peak_memory.ENVIRONMENT},
        capture_output=True,
        text=True,
        check=True,
    )
    peaks = json.loads(done.stdout)
    assert (
        peaks.pop(peak_memory.COPY) > peak_memory.TENSOR - CONSTANT
    )  # the measure sees what there is
    assert len(peaks) == len(peak_memory.CASES)
    assert {case: peak for case, peak in peaks.items() if peak > CONSTANT} == {}
