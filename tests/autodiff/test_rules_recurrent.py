"""LSTM and GRU. Their gradients have kernels, and no form in standard operators."""

import numpy as np
import pytest
from autodiff.harness import Case, check, normal

S, N, C, H = 4, 2, 3, 5  # steps, batch, input size, hidden size
_FLOAT = {
    "dtype": np.float32,
    "rtol": 3e-3,
    "why": "onnxruntime's kernels are float",
    "opsets": (17,),
}


def _lstm(what, directions=1, outputs=3, **rest):
    rest = {
        "W": normal(directions, 4 * H, C, scale=0.4),
        "R": normal(directions, 4 * H, H, scale=0.4),
    } | rest
    return Case("LSTM", what, X=normal(S, N, C), hidden_size=H, outputs=outputs, **rest, **_FLOAT)


def _gru(what, directions=1, outputs=2, **rest):
    rest = {
        "W": normal(directions, 3 * H, C, scale=0.4),
        "R": normal(directions, 3 * H, H, scale=0.4),
    } | rest
    return Case("GRU", what, X=normal(S, N, C), hidden_size=H, outputs=outputs, **rest, **_FLOAT)


CASES = [
    _lstm("without bias"),
    _lstm("bias and initial states", B=normal(1, 8 * H), initial_h=normal(1, N, H),
          initial_c=normal(1, N, H, seed=1)),
    _lstm("both directions", 2, direction="bidirectional", B=normal(2, 8 * H)),
    _lstm("only all states", outputs=1, B=normal(1, 8 * H)),
    _lstm("peepholes", B=normal(1, 8 * H), P=normal(1, 3 * H)),
    _gru("without bias"),
    _gru("bias and initial state", B=normal(1, 6 * H), initial_h=normal(1, N, H)),
    _gru("linear before reset", B=normal(1, 6 * H), linear_before_reset=1),
    _gru("both directions", 2, direction="bidirectional", B=normal(2, 6 * H)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_fused(case):
    check(case, 17, "static", "fused")
