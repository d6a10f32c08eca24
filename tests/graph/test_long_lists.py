"""Lists of integers that onnx computes along with the shapes: not where Concat would double them for ever."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from onnxgrad.graph import load
from onnxgrad.graph.sizes import LONGEST_SHAPE, joins_many


def model(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 3] x) => (float[M, K] y)
        <int64[1] one = {{1}}, float[3, 3] w = {{1,2,3,4,5,6,7,8,9}}> {{ {body} }}""")


def doubled(start: str, first: str, times: int, end: str) -> ir.Model:
    joins = [f"c{i + 1} = Concat<axis = 0>(c{i}, c{i})" for i in range(times)]
    return ir.from_proto(
        model(" ".join([f"c0 = {start}({first})", *joins, end.format(f"c{times}")]))
    )


@pytest.mark.parametrize("start", ["Identity", "Cast<to = 7>", "Neg"])
def test_a_list_that_doubles(start):
    """Neg is not among the operators through which onnx carries integers."""
    end = "y = Expand(w, {})"
    assert LONGEST_SHAPE == 10_000
    assert joins_many(doubled(start, "one", 14, end)) is (start != "Neg")
    assert not joins_many(doubled(start, "one", 13, end))
    shape = doubled("Shape", "x", 14, end)
    assert joins_many(shape)


def test_images_that_are_joined_again_and_again_are_no_lists():
    """As in a DenseNet, where every layer joins all before it."""
    assert not joins_many(doubled("Relu", "x", 30, "y = MatMul({}, w)"))


def test_a_shape_that_is_joined_is_still_known():
    found = load(
        model(
            "s = Shape(x)  n = Gather<axis = 0>(s, one)  k = Concat<axis = 0>(n, n)  y = Reshape(w, k)"
        )
    )
    assert list(found.graph.outputs[0].shape) == [3, 3]
