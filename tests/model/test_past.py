"""Decoders with a cache: which inputs are one, and what stands in their place in the graph that is trained."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from onnxgrad.model.past import WithoutPast, empty_past, is_past

HEADS, SIZE = 2, 3


def model(inner: str = f"{HEADS}, P, {SIZE}", name: str = "past_key_values.0.key") -> ir.Model:
    """Keys of before and keys of now, one after the other: both are returned, the second as a sum."""
    proto = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, {HEADS}, L, {SIZE}] x, float[N, {inner}] past)
            => (float[A, B, C, D] y, float[N, {HEADS}, M, {SIZE}] present)
        {{ present = Concat<axis = 2>(past, x)  y = Mul(present, present) }}""")
    proto.graph.input[1].name, proto.graph.output[1].name = name, "present.0.key"
    node = proto.graph.node
    node[0].input[0], node[0].output[0] = proto.graph.input[1].name, proto.graph.output[1].name
    node[1].input[:] = [node[0].output[0]] * 2
    return ir.from_proto(proto)


def test_the_graph_takes_no_past_and_returns_no_present():
    changed = model()
    change = WithoutPast()
    change.apply(changed)
    assert [v.name for v in changed.graph.inputs] == ["x"]
    assert [v.name for v in changed.graph.outputs] == ["y"]
    (note,) = change.describe()
    assert note.text == "1 inputs of past keys and values are left empty, as in a first prompt"
    x = np.random.default_rng(0).standard_normal((4, HEADS, 5, SIZE)).astype(np.float32)
    (y,) = ReferenceEvaluator(ir.to_proto(changed)).run(None, {"x": x})
    np.testing.assert_array_equal(y, x * x)  # nothing of before


def test_what_is_written_has_the_shapes_that_onnx_infers():
    changed = model()
    WithoutPast().apply(changed)
    told = {v.name: v.shape for node in changed.graph for v in node.outputs if v.shape is not None}
    proto = ir.to_proto(changed)
    del proto.graph.value_info[:]
    inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    found = {v.name: v.type.tensor_type.shape.dim for v in inferred.graph.value_info}
    assert len(told.keys() & found.keys()) >= 2
    for name in told.keys() & found.keys():
        assert len(told[name]) == len(found[name]), name
        for ours, theirs in zip(told[name], found[name], strict=True):
            if isinstance(ours, int) and theirs.HasField("dim_value"):
                assert ours == theirs.dim_value, name


@pytest.mark.parametrize(
    ("inner", "name", "expected"),
    [
        (f"{HEADS}, P, {SIZE}", "past_key_values.0.key", True),
        (f"H, P, {SIZE}", "past_0", True),
        (
            f"{HEADS}, 7, {SIZE}",
            "past_key_values.0.key",
            False,
        ),  # a length that is fixed is no cache
        (f"{HEADS}, P, {SIZE}", "keys", False),
        (f"{HEADS}, P", "past_key_values.0.key", False),
    ],
)
def test_which_inputs_are_a_cache(inner, name, expected):
    assert is_past(model(inner, name).graph.inputs[1]) == expected


def test_the_shape_of_an_empty_past():
    assert empty_past(["N", 2, "P", 3], 4) == [4, 2, 0, 3]
    assert empty_past([1, 2, "P", 3], 4) == [1, 2, 0, 3]
