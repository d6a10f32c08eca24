"""Rows of the comparison with PyTorch: a node, and the same as a function of torch tensors.

In float64, to 1e-6 (attributes are float32 in ONNX, also in double models). With onnxgrad's kernels as well as with
standard operators, where there is a kernel.
"""

from __future__ import annotations

import copy

import numpy as np
from autodiff.harness import RuleCase, build, evaluator, make_session
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplemented_

from onnxgrad.autodiff import vjp
from onnxgrad.autodiff.rule import FUSED


def row(op, function, _opset=21, _dtype=np.float64, **given):
    """`function` takes the float inputs as tensors, in order."""
    return RuleCase(op, "", opsets=(_opset,), dtype=_dtype, **given), function


def compare(case, function):
    """Assert that the gradients of all inputs are PyTorch's."""
    _compare(case, function, "standard")
    if (case.domain, case.op) in FUSED:
        try:
            _compare(case, function, "fused")
        except NotImplemented_:  # onnxruntime has the forward node for float only
            case = copy.copy(case)
            case.dtype = np.float32
            _compare(case, function, "fused")


def compare_kernels(case, function):
    """The same for operators of onnxgrad, which onnxruntime alone runs."""
    _compare(case, function, "fused")


def _compare(case, function, ops):
    import torch

    model, feeds, wrt = build(case, case.opsets[0], "static")
    leaves = [torch.tensor(feeds[n], requires_grad=True) for n in wrt]
    y = function(*leaves)
    dy = np.random.default_rng(0).standard_normal(tuple(y.shape)).astype(case.dtype)
    y.backward(torch.tensor(dy))
    gradient = vjp(model, outputs=["out_0"], wrt=wrt, ops=ops)
    given = {**feeds, "out_0_grad": dy}
    results = (
        evaluator(gradient)(given) if ops == "standard" else make_session(gradient).run(None, given)
    )
    got = dict(zip([o.name for o in gradient.graph.output], results, strict=True))
    for name, leaf in zip(wrt, leaves, strict=True):
        want = leaf.grad.numpy()
        bound = (1e-6 if case.dtype == np.float64 else 2e-4) * max(1.0, np.abs(want).max())
        message = f"{name}, {ops}"
        np.testing.assert_allclose(got[f"{name}_grad"], want, atol=bound, rtol=0, err_msg=message)
