"""At ties, at zero and at bounds, where differences have no say, the gradient is the one that the documents promise.

The numbers stand in the table, worked out by hand from the rule in words beside them (PyTorch's, which
tests/live/test_conventions.py asks itself). The cotangent of output i is i + 1.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from autodiff.harness import make_session

from onnxgrad.autodiff import vjp

# What, the node, the inputs, their gradients.
CASES = [
    ("equal inputs of Max share the cotangent", "Max(a, b)",
     {"a": [1, 2, 3], "b": [1, 0, 3]}, {"a": [0.5, 2, 1.5], "b": [0.5, 0, 1.5]}),
    ("equal inputs of Min share the cotangent", "Min(a, b)",
     {"a": [1, 2, 3], "b": [1, 0, 3]}, {"a": [0.5, 0, 1.5], "b": [0.5, 2, 1.5]}),
    ("three equal inputs of Max have a third each", "Max(a, b, a)",
     {"a": [6, 1, 0], "b": [6, 1, 5]}, {"a": [2 / 3, 4 / 3, 0], "b": [1 / 3, 2 / 3, 3]}),
    ("a power with the exponent 0 does not depend on its base", "Pow(a, b)",
     {"a": [0, 0, 2], "b": [0, 2, 0]}, {"a": [0, 0, 0], "b": [0, 0, 3 * np.log(2)]}),
    ("the exponent of base 0 has no influence", "Pow(a, b)",
     {"a": [0, 0, 1], "b": [1, 3, 5]}, {"a": [1, 0, 15], "b": [0, 0, 0]}),
    ("Relu passes nothing at 0", "Relu(a)", {"a": [0, -1, 1]}, {"a": [0, 0, 3]}),
    ("LeakyRelu has the lower slope at 0", "LeakyRelu <alpha = 0.25> (a)",
     {"a": [0, -1, 1]}, {"a": [0.25, 0.5, 3]}),
    ("Abs is flat at 0", "Abs(a)", {"a": [0, -1, 1]}, {"a": [0, -2, 3]}),
    ("the bounds of Clip are inside", "Clip(a, low, high)", {"a": [-1, 2, 1]}, {"a": [1, 0, 3]}),
    ("the upper bound of Clip is inside", "Clip(a, low, high)", {"a": [1, -2, 0]}, {"a": [1, 0, 3]}),
]  # fmt: skip


@pytest.mark.parametrize("ops", ["standard", "fused"])
@pytest.mark.parametrize(("text", "inputs", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])  # fmt: skip
def test_the_gradient_where_it_is_a_convention(text, inputs, expected, ops):
    declared = ", ".join(f"float[3] {name}" for name in inputs)
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> net ({declared}) => (float[3] y) '
        f"<float low = {{-1}}, float high = {{1}}> {{ y = {text} }}"
    )
    feeds = {n: np.array(v, np.float32) for n, v in inputs.items()}
    gradient = vjp(model, wrt=list(inputs), ops=ops)
    results = make_session(gradient).run(
        None, {**feeds, "y_grad": np.arange(1, 4, dtype=np.float32)}
    )
    got = dict(zip([o.name for o in gradient.graph.output], results, strict=True))
    for name, numbers in expected.items():
        np.testing.assert_allclose(got[f"{name}_grad"], numbers, rtol=1e-6, err_msg=name)


TAILS = {"": "y = Sigmoid(a)", "moved": "p = Sigmoid(a) t = Transpose(p) y = Identity(t)"}


@pytest.mark.parametrize("ops", ["standard", "fused"])
@pytest.mark.parametrize("tail", TAILS)
def test_the_slope_of_a_tiny_probability_is_exact(tail, ops):
    """onnxruntime's Sigmoid is exact to 1e-7 of 1, and Y·(1 - Y) no better: detectors answer 1e-6 and less."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> net (float[6] a) => (float[6] y) {{ {TAILS[tail]} }}'
    )
    x = np.array([-30, -17, -14, -9, 0, 16], np.float32)
    session = make_session(vjp(model, wrt=["a"], ops=ops))
    got = session.run(["a_grad"], {"a": x, "y_grad": np.ones(6, np.float32)})[0]
    e = np.exp(-np.abs(x.astype(np.float64)))
    np.testing.assert_allclose(got, e / (1 + e) ** 2, rtol=1e-6)
