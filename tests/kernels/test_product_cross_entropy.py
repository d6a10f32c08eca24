"""The last product and its loss in one: sizes that nobody thought of, what is refused, how much memory it takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cases.case import DTYPES, Case
from cases.linear_cross_entropy import label_samples
from cases.packed_family import nbits_case
from cases.samples import normal
from hypothesis import given, settings
from hypothesis import strategies as st
from peak_memory import ENVIRONMENT, peak_of

from onnxgrad import kernels
from onnxgrad.contracts import contracts
from onnxgrad.errors import ContractError

some = st.sampled_from
rows = st.lists(some((0, 1, 2, 3, 13)), min_size=1, max_size=3)
sizes = some((1, 2, 3, 15, 16, 17, 31, 33, 64, 65, 97, 129))
reductions, ignored = some(("mean", "sum")), some((None, -100, 0))


@settings(max_examples=max(settings().max_examples // 3, 1))
@given(rows=rows, K=sizes, N=sizes, reduction=reductions, ignored=ignored, data=st.data())
@pytest.mark.parametrize("op", ["LinearCrossEntropy", "MatMulNBitsCrossEntropy"])
def test_property_any_sizes_match_the_reference_on_one_and_two_threads(
    op, rows, K, N, reduction, ignored, data
):
    labels = label_samples(rows, N, ignored)
    if op == "LinearCrossEntropy":
        transposed = data.draw(some((0, 1)))
        W = normal(*((N, K) if transposed else (K, N)), spread=0.3)
        case = Case(
            "drawn", X=normal(*rows, K), W=W, **labels, transB=transposed, reduction=reduction
        )
    else:
        form = {"bits": data.draw(some((2, 4, 8))), "zero": data.draw(some(("", "packed")))}
        case = nbits_case("X", "drawn", rows, K, N, **labels, **form, reduction=reduction)
    case = case.of(contracts()[op])
    for dtype in DTYPES:
        case.assert_same_on_threads(dtype)


def call(X=(2, 8), labels=(1, 2), W=(8, 5), **more):
    numbers = {"X": np.zeros(X, np.float32), "W": np.zeros(W, np.float32)}
    return kernels.linear_cross_entropy(**numbers, labels=np.array(labels), **more)


REFUSED = [
    ({"labels": (1, 5)}, "input labels has the value 5 at [1], expected 0..4"),
    (
        {"labels": (-1, 1), "ignore_index": np.array(-100)},
        "input labels has the value -1 at [0], expected 0..4 or ignore_index = -100",
    ),
    ({"W": (7, 5)}, "input X has shape [2, 8], expected 7 columns, as W has"),
    (
        {"labels": (1, 2, 3)},
        "input labels has shape [3], expected [rows...] with rows... = [2] (from X)",
    ),
]


@pytest.mark.parametrize(("given", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_what_is_refused(given, message):
    with pytest.raises(ContractError) as error:
        call(**given)
    assert str(error.value) == f"LinearCrossEntropy: {message}"


def peak_of_a_loss() -> int:
    """Bytes for 1,024 rows and 65,536 words, whose scores are 256 MiB, with the gradient."""
    X = np.ones((1024, 16), np.float32)
    W = np.ones((16, 65_536), np.float32)
    labels = np.zeros(1024, np.int64)
    return peak_of(lambda: kernels.linear_cross_entropy(X, labels, W))


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK),
                    reason="this system does not tell how much memory a call needs")  # fmt: skip
def test_scores_never_exist_as_a_whole():
    tests = Path(__file__).parents[1]
    program = (
        "from kernels.test_product_cross_entropy import peak_of_a_loss; print(peak_of_a_loss())"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tests, check=True, text=True,
                          env={**os.environ, **ENVIRONMENT}, capture_output=True)  # fmt: skip
    assert int(done.stdout) < 48 << 20
