"""RNN, LSTM and GRU, by kernels and by a Scan in standard operators."""

import numpy as np
import pytest
from autodiff.harness import RuleCase, build, check, check_model, normal, table

from onnxgrad.autodiff import GradientError, vjp

S, N, C, H = 4, 2, 3, 5  # steps, batch, input size, hidden size


def _lstm(what, directions=1, outputs=3, **rest):
    rest = {
        "W": normal(directions, 4 * H, C, scale=0.4),
        "R": normal(directions, 4 * H, H, scale=0.4),
    } | rest
    return RuleCase(
        "LSTM", what, X=normal(S, N, C), hidden_size=H, outputs=outputs, opsets=(17,), **rest
    )


def _gru(what, directions=1, outputs=2, **rest):
    rest = {
        "W": normal(directions, 3 * H, C, scale=0.4),
        "R": normal(directions, 3 * H, H, scale=0.4),
    } | rest
    return RuleCase(
        "GRU", what, X=normal(S, N, C), hidden_size=H, outputs=outputs, opsets=(17,), **rest
    )


def _rnn(what, directions=1, outputs=2, **rest):
    rest = {
        "W": normal(directions, H, C, scale=0.4),
        "R": normal(directions, H, H, scale=0.4),
    } | rest
    return RuleCase(
        "RNN", what, X=normal(S, N, C), hidden_size=H, outputs=outputs, opsets=(17,), **rest
    )


_LENGTHS = {"sequence_lens": np.array([4, 2], np.int32)}

CASES = [
    _lstm("without bias"),
    _lstm("bias and initial states", B=normal(1, 8 * H), initial_h=normal(1, N, H),
          initial_c=normal(1, N, H, seed=1)),
    _lstm("reverse", direction="reverse", B=normal(1, 8 * H), initial_c=normal(1, N, H, seed=1)),
    _lstm("both directions", 2, direction="bidirectional", B=normal(2, 8 * H)),
    _lstm("only all states", outputs=1, B=normal(1, 8 * H)),
    _lstm("peepholes", B=normal(1, 8 * H), P=normal(1, 3 * H)),
    _lstm("lengths", 2, direction="bidirectional", B=normal(2, 8 * H), P=normal(2, 3 * H),
          initial_h=normal(2, N, H), initial_c=normal(2, N, H, seed=1), **_LENGTHS),
    _gru("without bias"),
    _gru("bias and initial state", B=normal(1, 6 * H), initial_h=normal(1, N, H)),
    _gru("linear before reset", B=normal(1, 6 * H), linear_before_reset=1),
    _gru("both directions", 2, direction="bidirectional", B=normal(2, 6 * H)),
    _gru("lengths", 2, direction="bidirectional", B=normal(2, 6 * H), initial_h=normal(2, N, H),
         linear_before_reset=1, **_LENGTHS),
]  # fmt: skip
STANDARD = [
    _rnn("without bias"),
    _rnn("bias and initial state", B=normal(1, 2 * H), initial_h=normal(1, N, H)),
    _rnn("both directions", 2, direction="bidirectional", B=normal(2, 2 * H),
         activations=["Tanh", "Sigmoid"]),
    _rnn("reverse, only the last state", direction="reverse", outputs=["f8", "f8"]),
    _rnn("lengths", 2, direction="bidirectional", initial_h=normal(2, N, H), **_LENGTHS),
    _lstm("other activations", B=normal(1, 8 * H), activations=["Sigmoid", "Tanh", "Sigmoid"]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_fused(case):
    check(case, 17, "static", "fused")


@table(CASES + STANDARD)
def test_standard(case, opset, shapes):
    check(case, opset, shapes, "standard")


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"clip": 2.0}, "has clip, which only the fused kernel does"),
        ({"activations": ["Softsign", "Tanh", "Tanh"]}, "has the activation 'Softsign'"),
    ],
)
def test_refusals(attributes, text):
    model, _, wrt = build(_lstm("refused", **attributes), 17, "static")
    with pytest.raises(GradientError, match=text):
        vjp(model, wrt=wrt, ops="standard")


BATCH_FIRST = [
    _lstm("batch first", B=normal(1, 8 * H), layout=1, outputs=2),
    _gru("batch first", B=normal(1, 6 * H), layout=1),
    _rnn("batch first", B=normal(1, 2 * H), layout=1),
]


@pytest.mark.parametrize("case", BATCH_FIRST, ids=str)
def test_batch_first(case):
    """onnxruntime has no layout=1 for these; ONNX's reference evaluator has."""
    case.inputs["X"] = normal(N, S, C)
    check(case, 17, "static", "standard")


@pytest.mark.parametrize("ops", ["standard", "fused"])
def test_only_the_last_state_is_an_output(ops):
    model, feeds, wrt = build(_lstm("the last state", outputs=2), 17, "static")
    model.graph.node[0].output[0] = ""
    del model.graph.output[0]
    check_model(model, feeds, wrt, ops)
