"""The exact text of every refusal of ConvGrad and ConvTraining, on both hosts."""

from __future__ import annotations

import numpy as np
import pytest
from ort_models import node_model
from refusals import assert_runtime_refuses

import onnxgrad
from onnxgrad import kernels
from onnxgrad.contracts import contracts


def zeros(*shape):
    return np.zeros(shape, np.float32)


DY, X, W = zeros(2, 4, 6, 6), zeros(2, 6, 8, 8), zeros(4, 6, 3, 3)

# dY, X, W, attributes, text
WRONG = [
    (DY, X, zeros(4, 6, 3), {},
     "input W has shape [4, 6, 3], expected 2 kernel dims (X has shape [2, 6, 8, 8])"),
    (zeros(2, 4, 6), X, W, {},
     "input dY has shape [2, 4, 6], expected 2 spatial dims (X has shape [2, 6, 8, 8])"),
    (zeros(2, 4), zeros(2, 6), zeros(4, 6), {},
     "input X has shape [2, 6], expected at least one spatial dim"),
    (zeros(3, 4, 6, 6), X, W, {},
     "input X has shape [2, 6, 8, 8], expected [N, C, in...] with N = 3 (from dY)"),
    (zeros(2, 5, 6, 6), X, W, {},
     "input W has shape [4, 6, 3, 3], expected [M, Cg, kernel...] with M = 5 (from dY)"),
    (DY, X, zeros(4, 5, 3, 3), {},
     "input W has 5 channels, expected C / group = 6 / 1 (C from X)"),
    (DY, X, W, dict(group=2), "input W has 6 channels, expected C / group = 6 / 2 (C from X)"),
    (DY, X, zeros(4, 1, 3, 3), dict(group=4),
     "input W has 1 channels, expected C / group = 6 / 4 (C from X)"),
    (zeros(2, 5, 6, 6), X, zeros(5, 3, 3, 3), dict(group=2),
     "input W has 5 filters, expected a multiple of group = 2"),
    (DY, X, W, dict(group=0), "group is 0, expected at least 1"),
    (DY, X, W, dict(group=-2), "group is -2, expected at least 1"),
    (DY, X, W, dict(strides=[1]),
     "strides is [1], expected 2 numbers (X has shape [2, 6, 8, 8])"),
    (DY, X, W, dict(strides=[0, 1]), "strides is [0, 1], expected numbers of at least 1"),
    (DY, X, W, dict(dilations=[1, -1]), "dilations is [1, -1], expected numbers of at least 1"),
    (DY, X, W, dict(dilations=[1, 1, 1]),
     "dilations is [1, 1, 1], expected 2 numbers (X has shape [2, 6, 8, 8])"),
    (DY, X, W, dict(pads=[1, 1]), "pads is [1, 1], expected 4 numbers (X has shape [2, 6, 8, 8])"),
    (DY, X, W, dict(pads=[0, 0, 0, -1]),
     "pads is [0, 0, 0, -1], expected numbers of at least 0"),
    (DY, X, W, dict(kernel_shape=[3, 2]), "kernel_shape is [3, 2], expected [3, 3] (from W)"),
    (DY, X, zeros(4, 6, 3, 0), {},
     "input W has shape [4, 6, 3, 0], expected kernel dims of at least 1"),
    (DY, X, W, dict(pads=[1, 1, 1, 1]),
     "input dY has spatial dims [6, 6], expected [8, 8] (X [8, 8], kernel [3, 3], strides [1, 1], "
     "dilations [1, 1], pads [1, 1, 1, 1], auto_pad NOTSET)"),
    (DY, X, W, dict(strides=[2, 1]),
     "input dY has spatial dims [6, 6], expected [3, 6] (X [8, 8], kernel [3, 3], strides [2, 1], "
     "dilations [1, 1], pads [0, 0, 0, 0], auto_pad NOTSET)"),
    (DY, X, W, dict(auto_pad="SAME_UPPER"),
     "input dY has spatial dims [6, 6], expected [8, 8] (X [8, 8], kernel [3, 3], strides [1, 1], "
     "dilations [1, 1], pads [0, 0, 0, 0], auto_pad SAME_UPPER)"),
    (DY, X, W, dict(auto_pad="VALID", pads=[1, 0, 0, 0]),
     "pads is [1, 0, 0, 0], expected none with auto_pad VALID"),
    (DY, X, W, dict(winograd_tile=3), "winograd_tile is 3, expected 0, 2 or 4"),
]  # fmt: skip


def assert_refused(op, kernel, arrays, attributes, text):
    contract = contracts()[op]
    with pytest.raises(onnxgrad.ContractError) as error:
        kernel(**arrays, **attributes)
    assert str(error.value) == f"{op}: {text}"

    outputs = [t.name for t in contract.outputs]
    model = node_model(contract, arrays, attributes, outputs)
    assert_runtime_refuses(model, arrays, f"{op}: {text}")


@pytest.mark.parametrize(
    ("dy", "x", "w", "attributes", "text"), WRONG, ids=[row[4] for row in WRONG]
)
def test_both_hosts_refuse_with_the_same_text(dy, x, w, attributes, text):
    arrays = {"dY": dy, "X": x, "W": w}
    assert_refused("ConvGrad", kernels.conv_grad, arrays, attributes, text)


FORWARD = [row[1:] for row in WRONG if "dY" not in row[4]]


@pytest.mark.parametrize(("x", "w", "attributes", "text"), FORWARD, ids=[row[3] for row in FORWARD])
def test_the_forward_operator_refuses_with_the_same_text(x, w, attributes, text):
    arrays = {"X": x, "W": w}
    assert_refused("ConvTraining", kernels.conv_training, arrays, attributes, text)


def test_a_bias_of_another_size_is_refused():
    text = "input B has shape [5], expected [M] with M = 4 (from W)"
    arrays = {"X": X, "W": W, "B": zeros(5)}
    assert_refused("ConvTraining", kernels.conv_training, arrays, {}, text)


def test_an_unknown_auto_pad_is_refused():
    with pytest.raises(onnxgrad.ContractError, match="auto_pad is 'SAME'"):
        kernels.conv_grad(DY, X, W, auto_pad="SAME")
