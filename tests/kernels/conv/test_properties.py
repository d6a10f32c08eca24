"""ConvGrad and ConvTraining on shapes that nobody thought of: hypothesis draws them, the reference judges."""

from __future__ import annotations

import numpy as np
from cases.conv_grad import conv, output_size
from cases.conv_training import forward
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onnxgrad import kernels
from onnxgrad.contracts import contracts

MODES = ("NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@st.composite
def convolutions(draw):
    """A case with at most about 2 M multiplications; channels often lie next to a register's width."""
    rank = draw(st.sampled_from((1, 2, 2, 2, 3, 4)))
    group = draw(st.sampled_from((1, 1, 1, 2, 3, 8)))
    channels, filters = (
        draw(st.integers(1, 3) | st.sampled_from((15, 16, 17, 32, 33))) for _ in "cm"
    )

    def per_axis(low, high):
        return draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    size = per_axis(1, {1: 60, 2: 14, 3: 7, 4: 4}[rank])
    same = draw(st.booleans()) and rank in (2, 3)  # the shapes that have algorithms of their own
    kernel = [draw(st.sampled_from((1, 3)))] * rank if same else per_axis(1, 4)
    strides = [1] * rank if same else per_axis(1, 3)
    dilations = [1] * rank if same else per_axis(1, 3)
    mode = draw(st.sampled_from(MODES))
    attributes = dict(strides=strides, dilations=dilations, group=group, auto_pad=mode)
    if mode == "NOTSET":
        attributes["pads"] = per_axis(0, 3) + per_axis(0, 3)
    n = draw(st.integers(1, 3))
    out = np.prod([-(-i // s) + 6 for i, s in zip(size, strides, strict=True)])
    assume(n * group * channels * filters * np.prod(kernel) * out < 4_000_000)
    return conv("drawn", n, group * channels, group * filters, size, kernel, **attributes)


@given(convolutions(), st.sampled_from((np.float32, np.float64)), st.integers(1, 3))
def test_property_matches_the_reference(case, dtype, threads):
    bound = case.of(contracts()["ConvGrad"])
    kernels.set_num_threads(threads)
    bound.assert_close(bound.run_numpy(dtype), dtype)


@given(convolutions(), st.sampled_from((np.float32, np.float64)), st.integers(1, 3), st.booleans())
def test_property_forward_matches_the_reference(case, dtype, threads, bias):
    bound = forward(case, bias).of(contracts()["ConvTraining"])
    kernels.set_num_threads(threads)
    bound.assert_close(bound.run_numpy(dtype), dtype)


@settings(max_examples=settings().max_examples // 4)
@given(convolutions())
def test_property_dx_and_dw_alone_have_the_same_bits(case):
    bound = case.of(contracts()["ConvGrad"])
    together = bound.run_numpy(np.float32)
    inputs = bound.inputs(np.float32)
    for name in ("dX", "dW"):
        alone = kernels.conv_grad(**inputs, **case.attributes, outputs=(name,))
        assert getattr(alone, name).tobytes() == together[name].tobytes()


def test_output_size_is_that_of_the_forward_operator():
    assert output_size(8, 3, 2, (1, 1), "NOTSET") == 4
    assert output_size(8, 3, 3, (0, 0), "SAME_LOWER") == 3
