"""LSTM and GRU in settings that nobody thought of: hypothesis draws them, the references judge."""

from __future__ import annotations

import numpy as np
from cases.case import Case
from cases.gru import GRU
from cases.lstm import LSTM
from cases.recurrent import (
    ALPHAS,
    BETAS,
    FUNCTIONS,
    Family,
    Setting,
    draw_gradient_inputs,
    draw_inputs,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onnxgrad import kernels
from onnxgrad.contracts import contracts

# At a kink the slope depends on the last bit of a value; test_kernels.py tries these functions away from it.
SMOOTH = [f for f in FUNCTIONS if f not in {"Relu", "ThresholdedRelu", "LeakyRelu", "HardSigmoid"}]
# An unbounded gate can multiply the state in every step, and what was rounded off with it, up to 1e150 in eight
# steps. Settings whose exact states exceed this are not tried: nobody trains such a network.
LARGEST_STATE = 100
# A term of a gradient is a product of about eight rounded numbers (dh, o, 1 − h², c, i, 1 − i, R, …), so its error is
# up to eight times that of one rounding. Measured: at most 4.9 times, in 240 000 drawn outputs of which 19 needed it.
ROUNDINGS = 8
OPERATORS = {"lstm": ("LSTMTraining", "LSTMGrad"), "gru": ("GRUTraining", "GRUGrad")}
WIDTHS = st.integers(1, 9) | st.sampled_from((15, 16, 17, 31, 32, 33, 40, 64))


@st.composite
def drawn_settings(draw, family: Family) -> Setting:
    """Sizes lie next to a register's width as often as not; a step may be cut into several slices."""
    S, N, I, H = draw(st.integers(0, 9)), draw(st.integers(0, 20)), draw(WIDTHS), draw(WIDTHS)  # noqa: E741
    attributes = dict(direction=draw(st.sampled_from(("forward", "reverse", "bidirectional"))))
    directions = 2 if attributes["direction"] == "bidirectional" else 1
    if draw(st.booleans()):
        attributes[family.flag] = 1
    if draw(st.integers(0, 3)) == 0:
        count = directions * len(family.standard)
        names = draw(st.lists(st.sampled_from(SMOOTH), min_size=count, max_size=count))
        attributes.update(activations=names, activation_alpha=ALPHAS, activation_beta=BETAS)
    lengths = None
    if draw(st.booleans()):
        lengths = tuple(draw(st.lists(st.integers(0, S), min_size=N, max_size=N)))
    optional = ["B", *family.states, *(["P"] if family.peepholes else [])]
    without = tuple(n for n in optional if draw(st.booleans()))
    return Setting("drawn", S, N, I, H, lengths, without, 0.7, attributes)


def case_of(op: str, inputs: dict[str, np.ndarray], attributes) -> Case:
    samples = {name: (lambda rng, a=array: a) for name, array in inputs.items()}
    return Case("drawn", **samples, **attributes).of(contracts()[op])


def rms(array) -> float:
    return float(np.sqrt(np.mean(np.square(array, dtype=np.float64)))) if array.size else 0.0


def shaken(case: Case, dtype, seed: int) -> Case:
    """The case with every number off by up to half a unit in the last place, as rounding it leaves it."""
    rng, half = np.random.default_rng(seed), np.finfo(dtype).eps / 2
    inputs = {
        name: v
        if v.dtype == np.int32
        else v.astype(np.float64) * (1 + rng.uniform(-half, half, v.shape))
        for name, v in case.inputs(dtype).items()
    }
    return case_of(case.contract.name, inputs, case.attributes)


def changes_by_rounding(case: Case, dtype, expected: dict) -> dict[str, float]:
    """How far each exact result moves when the inputs are rounded: the most in four draws."""
    moved = [shaken(case, dtype, seed).run_reference(np.float64) for seed in range(4)]
    return {name: max(rms(m[name] - expected[name]) for m in moved) for name in case.wanted()}


def assert_as_exact_as_its_inputs(case: Case, dtype) -> None:
    """Within the contract's bound of the exact result, or as near to it as its inputs allow.

    The second matters where an output is a few numbers, each the sum of many terms that cancel: one number of dW for
    I = H = 1 can be a thousandth of its terms.
    """
    got, expected = case.run_numpy(dtype), case.run_reference(dtype)
    errors = {name: rms(got[name] - expected[name]) for name in case.wanted()}
    over = [n for n, e in errors.items() if not e <= case.bound(n, dtype) * rms(expected[n])]
    if not over:
        return
    natural = changes_by_rounding(case, dtype, expected)
    assert all(errors[name] <= ROUNDINGS * natural[name] for name in over), over


def stable_gradient_inputs(family: Family, setting: Setting) -> dict[str, np.ndarray]:
    with np.errstate(all="ignore"):
        inputs = draw_gradient_inputs(family, setting)
    assume(all(np.abs(inputs[name]).max(initial=0) <= LARGEST_STATE for name in family.kept))
    return inputs


def assert_right(family: Family, setting: Setting, dtype, threads: int) -> None:
    """The forward operator and its gradient, each from the exact inputs."""
    kernels.set_num_threads(threads)
    forward, gradient = OPERATORS[family.op]
    inputs = stable_gradient_inputs(family, setting)
    for case in (
        case_of(forward, draw_inputs(family, setting), setting.attributes),
        case_of(gradient, inputs, setting.attributes),
    ):
        assert_as_exact_as_its_inputs(case, dtype)


def assert_same_bits(family: Family, setting: Setting, wanted: str) -> None:
    """One output alone, on three threads, has the bits that it has among the others on one."""
    inputs = stable_gradient_inputs(family, setting)
    case = case_of(OPERATORS[family.op][1], inputs, setting.attributes)
    kernels.set_num_threads(1)
    together = case.run_numpy(np.float32)
    kernels.set_num_threads(3)
    kernel = getattr(kernels, f"{family.op}_grad")
    alone = kernel(**case.inputs(np.float32), **setting.attributes, outputs=(wanted,))
    assert getattr(alone, wanted).tobytes() == together[wanted].tobytes()


DTYPES = st.sampled_from((np.float32, np.float64))
fewer = settings(max_examples=settings().max_examples // 2)


@given(drawn_settings(LSTM), DTYPES, st.integers(1, 3))
def test_property_lstm_matches_the_reference(setting, dtype, threads):
    assert_right(LSTM, setting, dtype, threads)


@given(drawn_settings(GRU), DTYPES, st.integers(1, 3))
def test_property_gru_matches_the_reference(setting, dtype, threads):
    assert_right(GRU, setting, dtype, threads)


@fewer
@given(drawn_settings(LSTM), st.sampled_from(LSTM.gradients))
def test_property_lstm_outputs_alone_have_the_same_bits(setting, wanted):
    assert_same_bits(LSTM, setting, wanted)


@fewer
@given(drawn_settings(GRU), st.sampled_from(GRU.gradients))
def test_property_gru_outputs_alone_have_the_same_bits(setting, wanted):
    assert_same_bits(GRU, setting, wanted)
