"""Along which axis blocks lie and which one numbers the channels, for every operator with a weight."""

from __future__ import annotations

import pytest
from onnx import helper

from onnxgrad.model.quantize.plan import _along, _outputs

# operator, transB, which input the weight is, its rank: the axis that is summed over, the axis of channels
AXES = [
    ("MatMul", 0, 1, 2, 0, 1), ("MatMul", 0, 1, 3, 1, 2), ("MatMul", 0, 0, 2, 1, 0), ("MatMul", 0, 0, 3, 2, 1),
    ("Gemm", 0, 1, 2, 0, 1), ("Gemm", 1, 1, 2, 1, 0),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "transposed", "place", "rank", "along", "channels"), AXES)
def test_axes_of_a_product(operator, transposed, place, rank, along, channels):
    attributes = {"transB": transposed} if transposed else {}
    node = helper.make_node(operator, ["a", "b"], ["y"], **attributes)
    assert _along(node, place, rank) == along
    assert _outputs(node, place, rank) == channels


@pytest.mark.parametrize(("operator", "channels"), [("Conv", 0), ("ConvTranspose", 1)])
def test_channels_of_a_convolution(operator, channels):
    assert _outputs(helper.make_node(operator, ["x", "w"], ["y"]), 1, 4) == channels
