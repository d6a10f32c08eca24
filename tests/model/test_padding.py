"""The row of zeros that stands for padding: where it is seen, and what the graph then says of itself."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxgrad.graph import load
from onnxgrad.model.padding import Padding

LOOKUP = "y = Gather(w, i)"


def model(body: str = LOOKUP, zeros: tuple[int, ...] = (1,), rows: int = 4) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (int64[2, 3] i) => (float[A, B, C] y) {{ {body} }}""")
    table = np.arange(1, 2 * rows + 1, dtype=np.float32).reshape(rows, 2)
    table[list(zeros)] = 0
    proto.graph.initializer.append(onnx.numpy_helper.from_array(table, "w"))
    return proto


def test_what_is_written_has_the_shapes_that_onnx_infers():
    graph = load(model())
    Padding().apply(graph)
    told = {v.name: tuple(v.shape) for n in graph.graph for v in n.outputs if v.shape is not None}
    proto = ir.to_proto(graph)
    del proto.graph.value_info[:]
    inferred = {
        v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
        for v in onnx.shape_inference.infer_shapes(proto, strict_mode=True).graph.value_info
    }
    assert {n.op_type for n in graph.graph} == {
        "Gather",
        "Equal",
        "Not",
        "Cast",
        "Unsqueeze",
        "Mul",
    }
    assert [told[name] for name in inferred if name in told] == [
        inferred[name] for name in inferred if name in told
    ]
    assert (2, 3, 1) in told.values()


@pytest.mark.parametrize(
    ("proto", "rows"),
    [
        (model(), {"w": 1}),
        (model(zeros=(0,)), {"w": 0}),
        (model(zeros=()), {}),
        (model(zeros=(0, 2)), {}),  # which of them?
        (model(zeros=(1,), rows=3), {"w": 1}),
        (model(zeros=(1,), rows=2), {}),  # half of the table is no padding
        (model("y = Gather<axis = 1>(w, i)"), {}),
        (model("g = Gather(w, i) s = ReduceSum<keepdims = 0>(w) y = Add(g, s)"), {}),
    ],
)
def test_which_row_is_taken_for_padding(proto, rows):
    padding = Padding()
    padding.apply(load(proto))
    assert padding.rows == rows
    assert [(n.subject, f"row {rows[n.subject]} of" in n.text) for n in padding.describe()] == [
        (name, True) for name in rows
    ]
