"""ResizeGrad is the transpose of ONNX Runtime's own Resize: ⟨dY, Resize(V)⟩ = ⟨ResizeGrad(dY), V⟩ for any V."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxgrad import kernels

TRANSFORMS = [
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
]
SCALES = [(2.0, 2.0), (0.6, 0.7), (1.7, 0.45), (3.0, 1.0)]
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]

ROWS = [
    *(
        dict(mode=m, coordinate_transformation_mode=t)
        for m in ("linear", "cubic")
        for t in TRANSFORMS
    ),
    *(
        dict(mode="nearest", coordinate_transformation_mode=t, nearest_mode=n)
        for t in TRANSFORMS
        for n in NEAREST
    ),
    dict(mode="cubic", exclude_outside=1),
    dict(mode="cubic", cubic_coeff_a=-0.5),
    *(dict(mode=m, antialias=1, exclude_outside=e) for m in ("linear", "cubic") for e in (0, 1)),
]


def forward(x, scales, attributes):
    import onnxruntime

    node = helper.make_node("Resize", ["X", "", "scales"], ["Y"], **attributes)
    infos = [
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in ("X", "scales", "Y")
    ]
    graph = helper.make_graph([node], "resize", infos[:2], infos[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"X": x, "scales": scales})[0]


@pytest.mark.parametrize(("attributes", "scale"), list(itertools.product(ROWS, SCALES)), ids=str)
def test_transpose_of_onnxruntime(attributes, scale):
    rng = np.random.default_rng(0)
    v = rng.normal(size=(2, 3, 11, 12)).astype(np.float32)
    scales = np.array((1, 1, *scale), np.float32)
    y = forward(v, scales, attributes)
    dy = rng.normal(size=y.shape).astype(np.float32)
    dx = kernels.resize_grad(dy, v, None, scales, **attributes)
    left, right = np.vdot(dy.astype(float), y), np.vdot(dx.astype(float), v)
    assert abs(left - right) <= 1e-4 * np.linalg.norm(dy) * np.linalg.norm(y) / np.sqrt(dy.size)
