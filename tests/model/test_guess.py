"""One guess of task and loss: what `inspect` says of a model is what `train` does with fitting targets."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxgrad.graph import load
from onnxgrad.inspection import inspect
from onnxgrad.model.guess import guess
from onnxgrad.train.losses import NAMES

BCE, NLL = "bce_probabilities", "nll_probabilities"
LABELS, NUMBERS, BITS = np.arange(3), np.linspace(0, 1, 3), np.array([0, 1, 0])
# the body of a model, the shape of its output, the loss without targets, targets, the loss with them
CASES = {
    "logits": ("y = MatMul(x, w)", "N, 3", "cross_entropy", LABELS, "cross_entropy"),
    "logits, one-hot": ("y = MatMul(x, w)", "N, 3", "cross_entropy", np.eye(3), "cross_entropy"),
    "logits, several at once": ("y = MatMul(x, w)", "N, 3", "cross_entropy", np.tril(np.ones((3, 3))), "bce"),
    "Softmax, one-hot": ("z = MatMul(x, w) y = Softmax(z)", "N, 3", "cross_entropy", np.eye(3), "cross_entropy"),
    "LogSoftmax, one-hot": ("z = MatMul(x, w) y = LogSoftmax(z)", "N, 3", "nll", np.eye(3), "nll"),
    "clipped Softmax, one-hot": ("z = MatMul(x, w) s = Softmax(z) y = Clip(s)", "N, 3", NLL, np.eye(3), NLL),
    "moved logits": ("z = MatMul(x, w) y = Identity(z)", "N, 3", "cross_entropy", LABELS, "cross_entropy"),
    "Softmax": ("z = MatMul(x, w) y = Softmax(z)", "N, 3", "cross_entropy", LABELS, "cross_entropy"),
    "clipped Sigmoid": ("z = MatMul(x, w) s = Sigmoid(z) y = Clip(s)", "N, 3", BCE, np.eye(3), BCE),
    "Sigmoid": ("z = MatMul(x, w) y = Sigmoid(z)", "N, 3", "bce", np.eye(3), "bce"),
    "LogSoftmax": ("z = MatMul(x, w) y = LogSoftmax(z)", "N, 3", "nll", LABELS, "nll"),
    "clipped Softmax": ("z = MatMul(x, w) s = Softmax(z) y = Clip(s)", "N, 3", NLL, LABELS, NLL),
    "a softmax in parts": ("z = MatMul(x, w) e = Exp(z) t = ReduceSum(e, last) y = Div(e, t)",
                           "N, 3", NLL, LABELS, NLL),
    "a sigmoid in parts": ("z = MatMul(x, w) n = Neg(z) e = Exp(n) d = Add(e, one) y = Reciprocal(d)",
                           "N, 3", NLL, np.eye(3), BCE),
    "a sigmoid of an open width": ("z = MatMul(x, w) s = Sigmoid(z) g = ReduceMax <axes = [0], keepdims = 0> (z) "
                                   "c = Cast <to = 9> (g) y = Compress <axis = 1> (s, c)", "N, K", BCE, None, None),
    "Relu": ("z = MatMul(x, w) y = Relu(z)", "N, 3", "mse", np.ones((3, 3)) / 2, "mse"),
    "one column": ("y = ReduceMean <axes = [1]> (x)", "N, 1", "mse", NUMBERS, "mse"),
    "bits of one column": ("y = ReduceMean <axes = [1]> (x)", "N, 1", "mse", BITS, "bce"),
    "no loss fits": ("y = MatMul(x, w)", "N, 3", "cross_entropy", np.ones((3, 2, 2, 2)), ""),
    "its own loss": ("loss = ReduceMean <keepdims = 0> (x)", "", "", None, None),
}  # fmt: skip


def model(body: str, shape: str) -> onnx.ModelProto:
    output = "loss" if "loss" in body else "y"
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 4] x) => (float[{shape}] {output})
        <float[4, 3] w = {{1,2,3,4,5,6,7,8,9,1,2,3}}, int64[1] last = {{-1}}, float one = {{1}}>
        {{ {body} }}""")


@pytest.mark.parametrize("case", CASES)
def test_the_loss_that_fits(case):
    body, shape, alone, targets, together = CASES[case]
    net = model(body, shape)
    found = guess(load(net))
    assert found.loss == alone
    assert inspect(net).guess == found
    if targets is not None:
        assert guess(load(net), targets).loss == together


def test_what_is_guessed_is_a_name_that_the_trainer_takes():
    for body, shape, *_ in CASES.values():
        loss = guess(load(model(body, shape))).loss
        assert not loss or loss in NAMES


def test_without_a_float_output_there_is_no_loss():
    net = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 4] x) => (int64[N] y) { y = ArgMax <axis = 1, keepdims = 0> (x) }""")
    assert guess(load(net), LABELS).loss == ""
