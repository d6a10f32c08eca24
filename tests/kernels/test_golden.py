"""The kernels agree with onnxruntime-training-cpu 1.19.2, recorded by tests/golden/record.py, wherever it is right."""

from __future__ import annotations

import numpy as np
import pytest
from cases import cases_of
from golden.differences import AGREES_BY_CHANCE, DIFFERENCES
from places import GOLDEN

from onnxgrad import _native, kernels
from onnxgrad.contracts import contracts

# Of the largest value of a tensor, or of dY/8 where a contract promises no more than that. The old kernels are
# float32 and not exact themselves.
TOLERANCE = 4e-6


def recorded() -> list:
    rows = []
    for contract in contracts().values():
        path = GOLDEN / f"{contract.python_name}.npz"
        if not path.exists():
            continue
        titles = {key.split("|")[0] for key in np.load(path).files if "|" in key}
        rows += [pytest.param(c, id=str(c)) for c in cases_of(contract) if c.title in titles]
    return rows


@pytest.mark.parametrize("case", recorded())
def test_agrees_with_the_old_kernel(case):
    data = np.load(GOLDEN / f"{case.contract.python_name}.npz")
    inputs = {k.split("|")[2]: data[k] for k in data.files if k.startswith(f"{case.title}|in|")}
    expected = {k.split("|")[2]: data[k] for k in data.files if k.startswith(f"{case.title}|out|")}
    kernel = getattr(kernels, case.contract.python_name)
    result = kernel(**inputs, **case.attributes, outputs=tuple(expected))
    values = result._asdict() if hasattr(result, "_asdict") else {next(iter(expected)): result}
    pointwise = case.contract.accuracy.measure.startswith("ulp")
    floor = np.nanmax(np.abs(inputs["dY"]), initial=0.0) / 8 if pointwise else 0.0
    same = all(agrees(values[name], array, floor) for name, array in expected.items())
    reason = DIFFERENCES.get(case.contract.name, {}).get(case.title)
    assert same or reason, (
        f"{case} differs from the old kernel without a reason in golden/differences.py"
    )
    by_chance = (_native.instruction_set(), case.contract.name, case.title) in AGREES_BY_CHANCE
    assert not (same and reason) or by_chance, (
        f"{case} agrees with the old kernel, but a difference is listed: {reason}"
    )


def agrees(got: np.ndarray, expected: np.ndarray, floor: float) -> bool:
    if expected.dtype.kind != "f":  # a mask, indices
        return np.array_equal(got, expected)
    finite = np.isfinite(expected)
    if not np.array_equal(got[~finite], expected[~finite], equal_nan=True):
        return False
    largest = np.abs(expected[finite]).max(initial=floor)
    return bool(np.all(np.abs(got[finite] - expected[finite]) <= TOLERANCE * largest))


def test_every_listed_difference_is_of_a_recorded_case():
    known = {(row.values[0].contract.name, row.values[0].title) for row in recorded()}
    listed = {(op, title) for op, reasons in DIFFERENCES.items() for title in reasons}
    assert listed <= known
