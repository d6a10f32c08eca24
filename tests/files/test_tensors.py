"""The door of tensors: every type in both ways to store it, one number more or less, wherever a tensor stands."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxgrad.errors import ModelError
from onnxgrad.files.tensors import LARGEST, byte_size, check, element_count, graphs, nodes, tensors

# type: bits of an element, the field that holds it, how many entries of it 6 elements take
STORED = {
    "FLOAT": (32, "float_data", 6), "DOUBLE": (64, "double_data", 6), "FLOAT16": (16, "int32_data", 6),
    "BFLOAT16": (16, "int32_data", 6), "INT8": (8, "int32_data", 6), "UINT8": (8, "int32_data", 6),
    "INT16": (16, "int32_data", 6), "UINT16": (16, "int32_data", 6), "INT32": (32, "int32_data", 6),
    "INT64": (64, "int64_data", 6), "UINT32": (32, "uint64_data", 6), "UINT64": (64, "uint64_data", 6),
    "BOOL": (8, "int32_data", 6), "COMPLEX64": (64, "float_data", 12), "COMPLEX128": (128, "double_data", 12),
    "INT4": (4, "int32_data", 3), "UINT4": (4, "int32_data", 3), "FLOAT8E5M2": (8, "int32_data", 6),
}  # fmt: skip


def tensor(kind: str, *dims: int) -> TensorProto:
    return TensorProto(name="t", data_type=getattr(TensorProto, kind), dims=dims)


@pytest.mark.parametrize("kind", STORED)
def test_numbers_are_as_many_as_the_shape_says(kind):
    bits, field, entries = STORED[kind]
    made = tensor(kind, 2, 3)
    getattr(made, field).extend([1] * entries)
    check(made)
    getattr(made, field).append(1)
    with pytest.raises(
        ModelError, match=r"tensor 't' of shape \[2, 3\] has .* numbers, expected 6"
    ):
        check(made)
    raw = tensor(kind, 2, 3)
    assert byte_size(raw) == -(-6 * bits // 8)
    for extra in (0, 1, -1):
        raw.raw_data = bytes(byte_size(raw) + extra)
        if not extra:
            check(raw)
            continue
        with pytest.raises(ModelError, match=r"bytes, expected"):
            check(raw)


def test_halves_of_a_byte_are_rounded_up():
    assert byte_size(tensor("INT4", 3)) == 2
    assert byte_size(tensor("INT4", 4)) == 2
    assert byte_size(tensor("UINT4", 5)) == 3


def test_text_is_counted_and_has_no_bytes():
    made = tensor("STRING", 2)
    made.string_data.extend([b"a", b"b"])
    check(made)
    made.string_data.append(b"c")
    with pytest.raises(ModelError, match="has 3 numbers, expected 2"):
        check(made)
    with pytest.raises(ModelError, match="is of text, which has no raw bytes"):
        byte_size(made)


@pytest.mark.parametrize(
    ("dims", "words"),
    [((-1, 2), "expected sizes of 0 or more"), ((2**31, 2**31), "no memory holds that"),
     ((2**40, 0, 2**40), "no memory holds that"), ((LARGEST + 1,), "no memory holds that")],
)  # fmt: skip
def test_shapes_that_no_tensor_has(dims, words):
    with pytest.raises(ModelError, match=words):
        element_count(tensor("FLOAT", *dims))


def test_shapes_at_the_limits():
    assert element_count(tensor("FLOAT", LARGEST)) == LARGEST
    assert element_count(tensor("FLOAT", 0, 2**31)) == 0
    assert element_count(tensor("FLOAT")) == 1


@pytest.mark.parametrize("kind", [0, 99, -1])
def test_types_that_onnx_does_not_have(kind):
    made = TensorProto(name="t\x1b[2J", dims=[1])
    made.data_type = kind
    with pytest.raises(ModelError) as caught:
        check(made)
    assert f"has the element type {kind}, which ONNX does not have" in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_external_numbers_are_counted_elsewhere():
    made = tensor("FLOAT", 5)
    made.data_location = TensorProto.EXTERNAL
    check(made)


def test_tensors_are_found_wherever_they_stand():
    def number(name: str) -> TensorProto:
        return onnx.numpy_helper.from_array(np.zeros(1, np.float32), name)

    def sparse(name: str) -> onnx.SparseTensorProto:
        indices = onnx.numpy_helper.from_array(np.zeros(1, np.int64), f"{name} indices")
        return helper.make_sparse_tensor(number(f"{name} values"), indices, [3])

    def constant(name: str) -> onnx.NodeProto:
        return helper.make_node("Constant", [], [name], value=number(name))

    inner = helper.make_graph([constant("in a branch")], "b", [], [], [number("of a branch")])
    other = helper.make_graph([constant("in a list of graphs")], "c", [], [])
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner)
    odd = helper.make_node(
        "Odd", [], ["z"], domain="mine", graphs=[other], listed=[number("in a list")]
    )
    kept = helper.make_node("Constant", [], ["s"], sparse_value=sparse("an attribute"))
    several = onnx.AttributeProto(name="several", type=onnx.AttributeProto.SPARSE_TENSORS)
    several.sparse_tensors.append(sparse("one of several"))
    odd.attribute.append(several)
    graph = helper.make_graph([node, odd, kept], "g", [], [], [number("an initializer")])
    graph.sparse_initializer.append(sparse("a sparse one"))
    model = helper.make_model(graph)
    function = helper.make_function("mine", "F", [], ["o"], [constant("in a function")], [])
    model.functions.append(function)
    assert {t.name for t in tensors(model)} == {
        "an initializer", "of a branch", "in a branch", "in a list of graphs", "in a list", "in a function",
        *(f"{name} {part}" for name in ("an attribute", "one of several", "a sparse one")
          for part in ("values", "indices")),
    }  # fmt: skip
    assert {g.name for g in graphs(model.graph)} == {"g", "b", "c"}
    assert len(nodes(model.graph, *model.functions)) == 6
