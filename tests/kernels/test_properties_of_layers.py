"""Linear layers, attention, quantisation, Gelu, gates and dropout on inputs that nobody thought of."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from cases.case import Case
from cases.judging import hold
from cases.samples import exactly
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference.attention_training import attention_training

from onnxgrad.contracts import contracts

EXAMPLES = max(settings().max_examples // 2, 1)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
some, flags = st.sampled_from, st.booleans()
widths = some((1, 2, 3, 5, 7, 8, 9, 16, 17, 31, 33, 64, 65))
lengths = some((2, 3, 7, 16, 17, 40, 129))  # one key alone has gradient 0: what is left is rounding


def normal_numbers(draw, *shape: int, spread: float = 1.0) -> np.ndarray:
    """Normal numbers that float32 holds exactly."""
    rng = np.random.default_rng(draw(st.integers(0, 9_999)))
    return (spread * rng.normal(size=shape)).astype(np.float32).astype(np.float64)


def case_of(arrays: dict[str, np.ndarray], **more) -> Case:
    return Case("drawn", **{name: exactly(array) for name, array in arrays.items()}, **more)


@st.composite
def linear(draw, op):
    rows = tuple(draw(st.lists(some((0, 1, 2, 5, 17, 40)), max_size=3)))
    k, n = draw(widths | some((0, 300))), draw(widths | some((0, 300)))
    arrays = {"X": normal_numbers(draw, *rows, k), "W": normal_numbers(draw, k, n)}
    if op == "LinearTraining":
        if draw(flags):
            arrays["B"] = normal_numbers(draw, n)
        return case_of(arrays)
    return case_of({"dY": normal_numbers(draw, *rows, n), **arrays})


@st.composite
def attention(draw, op):
    n, groups, shared = draw(some((1, 2, 3))), draw(some((1, 2, 3))), draw(some((1, 2, 3)))
    heads, queries, keys = groups * shared, draw(lengths), draw(lengths)
    # Heads of one or two numbers have gradients of a few numbers, of which little may be left when terms cancel.
    d, e = draw(some((5, 7, 8, 16, 17, 33, 64))), draw(some((5, 8, 9, 16, 31, 64)))
    arrays = {
        "Q": normal_numbers(draw, n, heads, queries, d),
        "K": normal_numbers(draw, n, groups, keys, d),
        "V": normal_numbers(draw, n, groups, keys, e),
    }
    if draw(flags):
        shape = [size if draw(flags) else 1 for size in (n, heads, queries, keys)]
        arrays["mask"] = normal_numbers(draw, *shape)
    attributes = {"causal": draw(some((0, 1))), "scale": draw(some((0.0, 0.125, 1.0)))}
    if draw(flags):
        arrays["key"] = np.array([draw(st.integers(0, 9)), 1], np.int64)
        attributes.update(ratio=0.25, stream=draw(st.integers(0, 3)))
    if not attributes["scale"]:
        del attributes["scale"]
    if op == "AttentionTraining":
        return case_of(arrays, **attributes)
    return _gradient_of_attention(draw, arrays, attributes)


def _gradient_of_attention(draw, arrays, attributes) -> Case:
    with np.errstate(all="ignore"):
        Y, LSE = attention_training(**arrays, **attributes)
    dY = normal_numbers(draw, *Y.shape)
    outputs = ("dQ", "dK", "dV", *(("dmask",) if "mask" in arrays else ()))
    # dS = P·(dP − Σ dY·Y): of two rows that nearly cancel, the rounding of Y is what is left.
    wider = {"rtol": 2e-5, "why": "Y and LSE are rounded, and the reference computes them anew"}
    return case_of({"dY": dY, "Y": Y, "LSE": LSE, **arrays}, **attributes, outputs=outputs, **wider)


@st.composite
def quantised(draw, op):
    """Scales are powers of two: x / scale is then exact in both types, and a tie is a tie in both."""
    shape = tuple(draw(st.lists(some((1, 2, 3, 5, 16, 17, 70)), min_size=1, max_size=3)))
    axis = draw(st.integers(0, len(shape) - 1))
    low, high = draw(some(((-128, 127), (0, 255), (-8, 7))))
    attributes, of = dict(quant_min=low, quant_max=high), ()
    how = draw(some(("tensor", "axis", "block")))
    if how != "tensor":
        attributes["axis"], of = axis, (shape[axis],)
    if how == "block":
        size = attributes["block_size"] = draw(some((1, 2, 16)))
        of = (*shape[:axis], -(-shape[axis] // size), *shape[axis + 1 :])
    rng = np.random.default_rng(draw(st.integers(0, 9_999)))
    arrays = {"input": normal_numbers(draw, *shape), "scale": 2.0 ** rng.integers(-7, -1, of)}
    if op == "FakeQuant" or draw(flags):
        arrays["zero_point"] = rng.integers(low, high + 1, of).astype(np.float64)
    if op == "FakeQuant":
        return case_of(arrays, **attributes)
    return case_of({"dY": normal_numbers(draw, *shape), **arrays}, **attributes)


@st.composite
def observed(draw, op):
    case = draw(quantised("FakeQuant"))
    arrays = {name: sample(None) for name, sample in case.samples.items()}
    of = arrays["scale"].shape
    ranges = {"low": -np.abs(normal_numbers(draw, *of)), "high": np.abs(normal_numbers(draw, *of))}
    attributes = {**case.attributes, "symmetric": draw(some((0, 1)))}
    arrays = {"X": arrays["input"], **ranges, "observe": np.array([draw(some((0, 1)))])}
    return case_of(arrays, momentum=draw(some((0.125, 1.0))), **attributes)


@st.composite
def masked(draw, op):
    shape = tuple(draw(st.lists(some((0, 1, 3, 17, 65)), max_size=3)))
    kept = np.random.default_rng(draw(st.integers(0, 999))).random(shape) < 0.7
    return case_of({"dY": normal_numbers(draw, *shape), "gradient_mask": kept})


@st.composite
def gelu(draw, op):
    shape = tuple(draw(st.lists(some((0, 1, 3, 17, 65)), max_size=3)))
    attributes = {"form": draw(some(("erf", "tanh", "sigmoid", "hard")))}
    if attributes["form"] == "sigmoid":
        attributes["alpha"] = draw(some((1.0, 1.702, -0.5)))
    return case_of(
        {"X": normal_numbers(draw, *shape, spread=draw(some((0.1, 1, 4))))}, **attributes
    )


@st.composite
def gate(draw, op):
    shape = draw(st.lists(some((0, 1, 3, 17, 65)), min_size=1, max_size=3))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    half = tuple(shape)
    shape[axis] *= 2
    arrays = {"X": normal_numbers(draw, *shape, spread=draw(some((0.1, 1, 4))))}
    if op == "GateGrad":
        arrays = {"dY": normal_numbers(draw, *half), **arrays}
    return case_of(arrays, axis=axis, form=draw(some(("tanh", "linear"))))


@st.composite
def seeded_dropout(draw, op):
    shape = tuple(draw(st.lists(some((0, 1, 3, 17, 65)), max_size=3)))
    key = np.array([draw(st.integers(-(2**62), 2**62)), draw(st.integers(0, 2**40))], np.int64)
    ratio, stream = draw(some((0.0, 0.1, 0.5, 0.9))), draw(st.integers(0, 100))
    return case_of({"X": normal_numbers(draw, *shape), "key": key}, ratio=ratio, stream=stream)


OPERATORS = {
    "LinearTraining": linear,
    "LinearGrad": linear,
    "AttentionTraining": attention,
    "AttentionGrad": attention,
    "FakeQuant": quantised,
    "FakeQuantGrad": masked,
    "LearnedFakeQuantGrad": quantised,
    "QuantObserver": observed,
    "GeluTraining": gelu,
    "GateTraining": gate,
    "GateGrad": gate,
    "SeededDropout": seeded_dropout,
}


@pytest.mark.parametrize("op", OPERATORS)
@settings(max_examples=EXAMPLES, suppress_health_check=SLOW)
@given(data=st.data())
def test_property_layers_match_the_reference(op, data):
    strategy = functools.partial(OPERATORS[op], op)
    hold(data.draw(strategy()).of(contracts()[op]))
