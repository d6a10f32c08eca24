"""How a drawn case is judged: by the reference in long double, and not at all where a relative measure says nothing."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from cases.case import DTYPES, Case
from onnxgrad import kernels


def rms(a):
    return np.sqrt(np.mean(np.square(a, dtype=np.longdouble))) if a.size else np.longdouble(0)


def exact(case, inputs):
    """The reference in long double: in double it rounds as much as a kernel does, which shows where terms cancel."""
    name = case.contract.python_name
    wide = {k: v.astype(np.longdouble) if v.dtype.kind == "f" else v for k, v in inputs.items()}
    with np.errstate(all="ignore"):
        function = getattr(importlib.import_module(f"reference.{name}"), name)
        return case._named(function(**wide, **case._rounded_attributes()))


def condition(case, dtype, name, expected, step=1e-10) -> float:
    """Σ |terms| / |Σ terms|, in root mean square over the output, where a term is what one input contributes.

    Each input is off by a Cauchy number times `step`. The sum of Cauchy numbers with these weights is again one, as
    wide as the sum of their absolute values, and half of its draws lie within that width.
    """

    def moved(seed):
        rng, inputs = np.random.default_rng(seed), case.inputs(dtype)
        for tensor in case.contract.inputs:
            if tensor.type == "T" and tensor.name in inputs:
                number = inputs[tensor.name].astype(np.longdouble)
                inputs[tensor.name] = number * (1 + step * rng.standard_cauchy(number.shape))
        return np.abs(exact(case, inputs)[name] - expected)

    terms = rms(np.median([moved(seed) for seed in range(9)], axis=0)) / step
    return float(terms / rms(expected))


def summed_axes(case, dtype) -> tuple[int, ...]:
    """The axes over which SoftmaxGrad and SoftmaxGrad_13 sum."""
    rank, default = case.inputs(dtype)["Y"].ndim, case.contract.attributes[0].default
    axis = case._rounded_attributes().get("axis", default) % max(rank, 1)
    return (axis,) if case.contract.name == "SoftmaxGrad_13" else tuple(range(axis, rank))


def is_short_softmax(case, dtype) -> bool:
    """Softmax in float32 along at most 1,024 elements, whose sums are in float."""
    if case.contract.name not in ("SoftmaxGrad", "SoftmaxGrad_13") or dtype != np.float32:
        return False
    shape = case.inputs(dtype)["Y"].shape
    return bool(shape) and np.prod([shape[a] for a in summed_axes(case, dtype)]) <= 1_024


def terms_of_a_row(case, dtype) -> float:
    """How many times the largest term of a row its terms Y·dY make up together: hundreds that cancel, beside a Y near 1
    whose own dY is 0, are rounded more than the row's largest result shows."""
    inputs = case.inputs(dtype)
    y, dy = inputs["Y"].astype(np.float64), inputs["dY"].astype(np.float64)
    terms = np.abs(y * dy).sum(summed_axes(case, dtype), keepdims=True)
    with np.errstate(all="ignore"):
        return float(np.nanmax(terms / case._call_reference("scale", dtype), initial=0.0))


def is_excused(case, dtype, name, expected, error) -> bool:
    """The error is relative to what is left of terms that cancel, or to numbers that `dtype` does not have.

    A term is rounded about twice, each time by eps / 6 in the mean square. An output of which that much of every term
    exceeds the bound is not held to it: a condition of 50 in float32 and 1,350 in float64, for bounds of 2e-6 and
    1e-13. It must still be as near as its terms allow (sound kernels stay below 0.4 eps per term), unless nothing is
    left of them at all.
    """
    limits, bound = np.finfo(dtype), case.bound(name, dtype)
    if is_short_softmax(case, dtype):
        return error <= limits.eps / 4 * terms_of_a_row(case, dtype)
    if case.contract.accuracy_of(name).measure != "relative rms":
        return False
    if 0 < rms(expected) < limits.tiny / bound:
        return True
    with np.errstate(all="ignore"):
        rounded = condition(case, dtype, name, expected) * limits.eps
    return rounded > 1 or (rounded / 3 > bound and error <= rounded)


def hold(case: Case) -> None:
    """Hold a drawn case to its contract: every output within its bound, the same bits on one thread and on two."""
    for dtype in DTYPES:
        kernels.set_num_threads(1)
        got = case.run_numpy(dtype)
        kernels.set_num_threads(2)
        again = case.run_numpy(dtype)
        for name, expected in exact(case, case.inputs(dtype)).items():
            assert got[name].tobytes() == again[name].tobytes(), f"{name} differs on two threads"
            assert got[name].shape == np.shape(expected)
            error, bound = case.error(name, got[name], expected, dtype), case.bound(name, dtype)
            if error > bound and not is_excused(case, dtype, name, expected, error):
                pytest.fail(f"{name} is off by {error:.3g}, allowed {bound:.3g}")
