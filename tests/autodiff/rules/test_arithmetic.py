"""Element-wise arithmetic and activations."""

import numpy as np
import onnx
import pytest
from autodiff.harness import (
    RuleCase,
    agree,
    check,
    distinct,
    evaluator,
    fused_evaluator,
    normal,
    positive,
    table,
)

from onnxgrad.autodiff import vjp

_PLAIN = ["Neg", "Exp", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Asinh", "Atan", "Erf"]
_AWAY_FROM_ZERO = ["Abs", "Reciprocal"]

CASES = [
    *[RuleCase(op, "ordinary", input=normal(3, 4)) for op in _PLAIN if op != "Neg"],
    RuleCase("Neg", "ordinary", X=normal(3, 4)),
    *[RuleCase(op, "away from zero", X=distinct(3, 4)) for op in _AWAY_FROM_ZERO],
    RuleCase("Sqrt", "positive", X=positive(3, 4)),
    RuleCase("Log", "positive", input=positive(3, 4)),
    *[
        RuleCase(op, "inside (-1, 1)", input=0.4 * np.tanh(normal(3, 4)))
        for op in ("Asin", "Acos", "Atanh")
    ],
    RuleCase("Acosh", "above 1", input=1 + positive(3, 4)),
    RuleCase("Identity", "ordinary", input=normal(3, 4)),
    RuleCase("Cast", "to the same type", input=normal(3), to=11),
    *[
        RuleCase(op, what, A=A, B=B)
        for op in ("Add", "Sub", "Mul", "Div")
        for what, A, B in [
            ("same shape", normal(3, 4), positive(3, 4)),
            ("B broadcast along a middle axis", normal(2, 3, 4), positive(2, 1, 4)),
            ("A of lower rank", normal(4), positive(2, 3, 4)),
            ("both broadcast", normal(3, 1), positive(1, 4)),
            ("a scalar B", normal(3, 4), positive()),
            ("an empty batch", normal(0, 4), positive(4)),
        ]
    ],
    RuleCase("Pow", "exponent tensor", X=positive(3, 4), Y=normal(3, 4)),
    RuleCase("Pow", "exponent broadcast", X=positive(3, 4), Y=normal(4)),
    RuleCase("Pow", "integer exponent", X=normal(3, 4), Y=np.array(3)),
    RuleCase("Pow", "constant square", X=normal(3, 4), Y=np.array(2)),
    RuleCase("Pow", "constant zero", X=normal(3, 4), Y=np.array(0)),
    RuleCase("Mod", "floats", A=distinct(3, 4), B=positive(4, low=0.3, high=0.7), fmod=1),
    RuleCase("Max", "two, broadcast", data_0=[distinct(3, 4), distinct(4, seed=1)]),
    RuleCase("Max", "three", data_0=[normal(3, 4), normal(3, 4, seed=1), normal(3, 4, seed=2)]),
    RuleCase("Max", "a single input", data_0=[normal(3, 4)]),
    RuleCase("Min", "two, broadcast", data_0=[distinct(3, 1), distinct(1, 4, seed=1)]),
    RuleCase("Sum", "three, broadcast", data_0=[normal(3, 4), normal(4), normal(3, 1)]),
    RuleCase("Mean", "two", data_0=[normal(3, 4), normal(4)]),
    RuleCase("Clip", "both bounds", input=normal(5, 5), min=np.array(-0.5), max=np.array(0.7)),
    RuleCase("Clip", "no lower bound", input=normal(5, 5), min=None, max=np.array(0.7)),
    RuleCase("Clip", "no upper bound", input=normal(5, 5), min=np.array(-0.5)),
    RuleCase("Clip", "no bounds", input=normal(5, 5)),
    RuleCase("Relu", "ordinary", X=distinct(3, 4)),
    RuleCase("LeakyRelu", "ordinary", X=distinct(3, 4), alpha=0.2),
    RuleCase("LeakyRelu", "negative slope", X=distinct(3, 4), alpha=-0.2),
    RuleCase("PRelu", "slope per channel", X=distinct(2, 3, 4), slope=normal(3, 1)),
    *[RuleCase(op, "ordinary", X=distinct(5, 5)) for op in ("Sigmoid", "Elu", "Selu", "Softplus")],
    RuleCase("Celu", "ordinary", X=distinct(5, 5), dtype=np.float32, rtol=1e-3, why="float only"),
    RuleCase("Elu", "another alpha", X=distinct(5, 5), alpha=0.3),
    RuleCase(
        "Celu",
        "another alpha",
        X=distinct(5, 5),
        alpha=0.3,
        dtype=np.float32,
        rtol=1e-3,
        why="ONNX has Celu for float only",
    ),
    RuleCase("Selu", "other constants", X=distinct(5, 5), alpha=0.3, gamma=2.0),
    RuleCase("Tanh", "ordinary", input=normal(3, 4)),
    RuleCase("Softsign", "ordinary", input=distinct(3, 4)),
    RuleCase("ThresholdedRelu", "ordinary", X=distinct(5, 5), alpha=0.3),
    RuleCase("HardSigmoid", "all three pieces", X=distinct(8, 8), alpha=0.3, beta=0.4),
    RuleCase("HardSwish", "all three pieces", X=2 * distinct(8, 10)),
    RuleCase("Mish", "ordinary", X=normal(3, 4)),
    RuleCase(
        "Shrink",
        "ordinary",
        input=4 * distinct(5, 5) + 0.1,
        lambd=0.425,
        bias=0.425,
    ),
    RuleCase("Gelu", "exact", X=normal(3, 4), opsets=(20,)),
    RuleCase("Gelu", "by tanh", X=normal(3, 4), approximate="tanh", opsets=(20,)),
    RuleCase("Swish", "ordinary", X=normal(3, 4), alpha=1.3, opsets=(24,)),
    *[
        RuleCase(op, what, input=normal(2, 3, 4), **axis)
        for op in ("Softmax", "LogSoftmax")
        for what, axis in [
            ("default axis", {}),
            ("a middle axis", {"axis": 1}),
            ("first", {"axis": -3}),
        ]
    ],
]


@table(CASES)
def test_standard(case, opset, shapes):
    check(case, opset, shapes, "standard")


_KERNELS = ["Relu", "Tanh", "LeakyRelu", "Gelu", "Swish", "Softmax", "LogSoftmax"]
FUSED = [c for c in CASES if c.op in _KERNELS and "negative slope" not in c.what]


@pytest.mark.parametrize("case", FUSED, ids=str)
def test_fused(case):
    agree(case, max(case.opsets))


def test_a_sigmoid_inside_a_model_takes_the_kernel():
    """One that is the model's answer goes by its input: tests/autodiff/rules/test_special_points.py."""
    text = "g (double[5] x) => (double[5] z) { y = Sigmoid(x)  z = Neg(y) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    feeds = {"x": normal(5), "z_grad": normal(5, seed=1)}
    fused, standard = (vjp(model, ops=ops, wrt=["x"]) for ops in ("fused", "standard"))
    assert "SigmoidGrad" in {n.op_type for n in fused.graph.node}
    got, expected = (
        dict(zip(["z", "x"], f(feeds), strict=True))
        for f in (fused_evaluator(fused), evaluator(standard))
    )
    np.testing.assert_allclose(got["x"], expected["x"], rtol=1e-12)
