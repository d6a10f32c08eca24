"""Products with weights in small integers: sizes that nobody thought of, what is refused, how much memory they take."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cases.case import DTYPES
from cases.packed_family import bnb4_case, nbits_case
from hypothesis import given, settings
from hypothesis import strategies as st
from peak_memory import ENVIRONMENT, peak_of

from onnxgrad import kernels
from onnxgrad.contracts import contracts
from onnxgrad.errors import ContractError

some = st.sampled_from
rows = st.lists(some((0, 1, 2, 3, 13)), max_size=3)
sizes = some((1, 2, 3, 15, 16, 17, 31, 33, 64, 65, 97, 129))
forms = st.fixed_dictionaries({
    "bits": some((2, 4, 8)), "block_size": some((16, 32, 64, 128)),
    "zero": some(("", "packed", "numbers")),
})  # fmt: skip
tables = st.fixed_dictionaries({"quant_type": some((0, 1)), "block_size": some((16, 64, 256))})
KINDS = {
    "MatMulNBitsTraining": (nbits_case, "A", forms), "MatMulNBitsGrad": (nbits_case, "dY", forms),
    "MatMulBnb4Training": (bnb4_case, "A", tables), "MatMulBnb4Grad": (bnb4_case, "dY", tables),
}  # fmt: skip


@pytest.mark.parametrize("op", KINDS)
@settings(max_examples=max(settings().max_examples // 3, 1))
@given(rows=rows, K=sizes, N=sizes, data=st.data())
def test_property_any_sizes_match_the_reference_on_one_and_two_threads(op, rows, K, N, data):
    build, factor, strategy = KINDS[op]
    case = build(factor, "drawn", rows, K, N, **data.draw(strategy)).of(contracts()[op])
    for dtype in DTYPES:
        case.assert_same_on_threads(dtype)


def nbits(A=(2, 64), B=(3, 2, 16), scales=(3, 2), **more):
    arrays = {n: np.zeros(s, np.float32) for n, s in {"A": A, "scales": scales}.items()}
    arrays["B"] = np.zeros(B, np.uint8)
    return kernels.mat_mul_n_bits_training(**arrays, **{"K": 64, "N": 3, **more})


def bnb4(A=(2, 64), B=(96,), absmax=(3,), **more):
    arrays = {n: np.zeros(s, np.float32) for n, s in {"A": A, "absmax": absmax}.items()}
    arrays["B"] = np.zeros(B, np.uint8)
    return kernels.mat_mul_bnb4_training(**arrays, **{"K": 64, "N": 3, **more})


POINTS, ZEROS = np.zeros((3, 1), np.uint8), np.zeros((3, 2), np.float32)
REFUSED = [
    (nbits, {"K": 0}, "K is 0, expected at least 1 and at most 2^30"),
    (nbits, {"N": 1 << 40}, "N is 1099511627776, expected at least 1 and at most 2^30"),
    (nbits, {"bits": 3}, "bits is 3, expected 2, 4 or 8"),
    (nbits, {"block_size": 24}, "block_size is 24, expected a power of 2 from 16 on"),
    (nbits, {"A": (2, 60)}, "input A has shape [2, 60], expected 64 columns (attribute K)"),
    (nbits, {"B": (3, 2, 15)}, "input B has 90 elements, expected 96"),
    (nbits, {"scales": (3, 3)}, "input scales has 9 elements, expected 6"),
    (nbits, {"zeros": np.zeros((3, 1), np.float32)}, "input zeros has 3 elements, expected 6"),
    (nbits, {"zero_points": POINTS[:2]}, "input zero_points has 2 elements, expected 3"),
    (nbits, {"zero_points": POINTS, "zeros": ZEROS},
     "zero_points and zeros are both given, expected one of them"),
    (bnb4, {"quant_type": 2}, "quant_type is 2, expected 0 or 1"),
    (bnb4, {"block_size": 8}, "block_size is 8, expected a power of 2 from 16 on"),
    (bnb4, {"B": (95,)}, "input B has 95 elements, expected 96"),
    (bnb4, {"absmax": (4,)}, "input absmax has 4 elements, expected 3"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "given", "message"), REFUSED)
def test_what_is_refused(call, given, message):
    name = "MatMulNBitsTraining" if call is nbits else "MatMulBnb4Training"
    with pytest.raises(ContractError) as error:
        call(**given)
    assert str(error.value) == f"{name}: {message}"


def peak_of_a_product() -> int:
    """Bytes for 8 rows against 4096 × 4096 numbers in 4 bits, which in float32 are 64 MiB."""
    A = np.ones((8, 4096), np.float32)
    B = np.full((4096, 128, 16), 0x98, np.uint8)
    scales = np.ones((4096, 128), np.float32)
    return peak_of(lambda: kernels.mat_mul_n_bits_training(A, B, scales, K=4096, N=4096))


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK),
                    reason="this system does not tell how much memory a call needs")  # fmt: skip
def test_weights_are_never_unpacked_as_a_whole():
    tests = Path(__file__).parents[1]
    program = "from kernels.test_packed import peak_of_a_product; print(peak_of_a_product())"
    done = subprocess.run([sys.executable, "-c", program], cwd=tests, check=True, text=True,
                          env={**os.environ, **ENVIRONMENT}, capture_output=True)  # fmt: skip
    assert int(done.stdout) < 8 << 20
