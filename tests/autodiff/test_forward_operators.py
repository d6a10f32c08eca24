"""Where a fused rule brings a forward operator of its own, the graph has that one in the place of the model's."""

from __future__ import annotations

import onnx
import pytest

from onnxgrad.autodiff import vjp

HEAD = '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> net '
# the model, its operator, the one that takes its place
CASES = {
    "GroupNormalization": (
        "(float[N, 4, 5] x, float[4] s, float[4] b) => (float[N, 4, 5] y) { y = GroupNormalization<num_groups=2>(x, s, b) }",
        "GroupNormalizationTraining",
    ),
    "LSTM": (
        "(float[S, N, 3] x, float[1, 8, 3] w, float[1, 8, 2] r) => (float[S, 1, N, 2] y) { y = LSTM<hidden_size=2>(x, w, r) }",
        "LSTMTraining",
    ),
    "GRU": (
        "(float[S, N, 3] x, float[1, 6, 3] w, float[1, 6, 2] r) => (float[S, 1, N, 2] y) { y = GRU<hidden_size=2>(x, w, r) }",
        "GRUTraining",
    ),
    "MaxPool": (
        "(float[N, 2, 8] x) => (float[N, 2, 4] y) { y = MaxPool<kernel_shape=[2], strides=[2]>(x) }",
        "MaxPoolTraining",
    ),
}  # fmt: skip


@pytest.mark.parametrize("operator", CASES)
def test_one_forward_operator_is_there(operator):
    text, ours = CASES[operator]
    model = onnx.parser.parse_model(HEAD + text)
    fused = [n.op_type for n in vjp(model, wrt=["x"]).graph.node]
    assert fused.count(ours) == 1
    assert operator not in fused
    standard = [n.op_type for n in vjp(model, wrt=["x"], ops="standard").graph.node]
    assert ours not in standard
