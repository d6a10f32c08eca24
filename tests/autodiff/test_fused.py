"""Every kernel that a rule uses gives what the standard operators give."""

import copy

import numpy as np
import onnx
import pytest
from autodiff.harness import RuleCase, agree, build, make_session
from autodiff.rules import test_conv as conv
from autodiff.rules import test_loss as loss
from autodiff.rules import test_normalization as normalization
from autodiff.rules import test_resize as resize
from autodiff.rules import test_shape as shape

from onnxgrad.autodiff import vjp
from onnxgrad.autodiff.rule import FUSED

CASES = [
    case
    for module in (conv, loss, normalization, resize, shape)
    for table in vars(module).values()
    if isinstance(table, list)
    for case in table
    if isinstance(case, RuleCase) and (case.domain, case.op) in FUSED
    if case.op not in ("Conv", "LSTM", "GRU", "LogSoftmax")  # judged beside their own tables
]
# The kernel does not do these: the standard rule takes them.
_LEFT = (
    "column major", "log_prob used, too", "all three outputs", "a scale per row",
    "inference: the statistics are inputs", "training: the statistics come from X", "rank 2",
    "both outputs used",
)  # fmt: skip
LEFT = [case for case in CASES if case.what in _LEFT]
CASES = [case for case in CASES if case.what not in _LEFT]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_standard_operators(case):
    agree(case, case.opsets[-1])


def test_forms_that_no_kernel_has_are_left_to_standard_operators():
    for case in LEFT:
        model, _, wrt = build(case, case.opsets[-1], "static")
        nodes = vjp(model, wrt=wrt, ops="fused").graph.node
        assert not any(n.domain for n in nodes), str(case)


def test_batch_norm_in_training_mode_is_two_kernels():
    """The running statistics are outputs, too, but nothing trains them."""
    case = next(c for c in LEFT if c.what == "training: the statistics come from X")
    case = copy.copy(case)
    case.dtype = np.float32
    model, feeds, _ = build(case, 17, "dynamic")
    results = {}
    for ops in ("fused", "standard"):
        g = vjp(model, outputs=["out_0"], wrt=["X", "scale", "B"], ops=ops)
        results[ops] = make_session(g).run(None, {**feeds, "out_0_grad": feeds["X"] ** 2})
        if ops == "fused":
            kinds = [n.op_type for n in g.graph.node if n.op_type != "Identity"]
            assert kinds == ["BatchNormInternal", "BatchNormalizationGrad"]
    for got, expected in zip(results["fused"], results["standard"], strict=True):
        np.testing.assert_allclose(got, expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("bounds", ["min, max", "min", '"", max'])
def test_clip_is_one_kernel(bounds):
    """Its bounds are scalars that nothing trains; at a bound the cotangent passes, as in PyTorch."""
    text = f"g (float[7] x) => (float[7] y) {{ y = Clip(x, {bounds}) }}".replace('""', "")
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.float32(v), n) for n, v in (("min", -1), ("max", 6))
    )
    x = np.array([-3, -1, -0.5, 0, 6, 6.5, 9], "f4")
    dy = np.arange(1, 8, dtype="f4")
    results = {}
    for ops in ("fused", "standard"):
        gradient = vjp(model, wrt=["x"], ops=ops)
        kinds = {n.op_type for n in gradient.graph.node}
        assert ("ClipGrad" in kinds) == (ops == "fused")
        results[ops] = make_session(gradient).run(["x_grad"], {"x": x, "y_grad": dy})[0]
    low, high = "min" in bounds, "max" in bounds
    inside = (x >= (-1 if low else -np.inf)) & (x <= (6 if high else np.inf))
    np.testing.assert_array_equal(results["fused"], np.where(inside, dy, 0))
    np.testing.assert_array_equal(results["standard"], results["fused"])
