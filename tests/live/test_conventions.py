"""At kinks and ties, where finite differences have no say, the gradient is PyTorch's."""

import numpy as np
import onnx
import pytest
from autodiff.harness import make_session

from onnxgrad.autodiff import vjp

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.live

_TIES = np.array([[1, 3, 3, -1], [2, 2, 2, 2], [0, -1, 0, 5]], np.float32)
_ZEROS = np.array([[0, 1, -1, 0], [3, -3, 6, -6]], np.float32)

CASES = [
    ("Relu(x)", torch.relu, _ZEROS),
    ("Abs(x)", torch.abs, _ZEROS),
    ("LeakyRelu <alpha = 0.1> (x)", lambda x: torch.nn.functional.leaky_relu(x, 0.1), _ZEROS),
    ("HardSwish(x)", torch.nn.functional.hardswish, _ZEROS),
    ("HardSigmoid <alpha = 0.16666667, beta = 0.5> (x)", torch.nn.functional.hardsigmoid, _ZEROS),
    ("Clip(x, low, high)", lambda x: torch.clamp(x, -1, 3), _ZEROS),
    ("Elu(x)", torch.nn.functional.elu, _ZEROS),
    ("Selu(x)", torch.selu, _ZEROS),
    ("Softsign(x)", torch.nn.functional.softsign, _ZEROS),
    ("ReduceMax <axes = [1], keepdims = 0> (x)", lambda x: torch.amax(x, 1), _TIES),
    ("ReduceMin <axes = [1], keepdims = 0> (x)", lambda x: torch.amin(x, 1), _TIES),
    ("ReduceL2 <axes = [1], keepdims = 0> (x)", lambda x: torch.linalg.norm(x, dim=1), 0 * _TIES),
    ("ReduceProd <axes = [1], keepdims = 0> (x)", lambda x: torch.prod(x, 1), _TIES),
    ("Max(x, three)", lambda x: torch.maximum(x, torch.tensor(3.0)), _TIES),
    ("Pow(x, three)", lambda x: x**3.0, _ZEROS),
]


@pytest.mark.parametrize(("text", "function", "x"), CASES, ids=[c[0] for c in CASES])
def test_at_kinks_and_ties(text, function, x):
    rank = "M" if "keepdims = 0" in text else "M, N"
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> net (float[M, N] x) => '
        f"(float[{rank}] y) <float low = {{-1}}, float high = {{3}}, float three = {{3}}> "
        f"{{ y = {text} }}"
    )
    leaf = torch.tensor(x, requires_grad=True)
    y = function(leaf)
    dy = np.arange(1, y.numel() + 1, dtype=np.float32).reshape(tuple(y.shape))
    y.backward(torch.tensor(dy))
    session = make_session(vjp(model, wrt=["x"], ops="standard"))
    got = session.run(["x_grad"], {"x": x, "y_grad": dy})[0]
    np.testing.assert_allclose(got, leaf.grad.numpy(), rtol=1e-6)
