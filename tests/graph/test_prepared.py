"""`graph.load` rewrites a model and computes the same: lists become tensors, branches that are known are taken,
bodies give up their weights. A row says which operators must be left.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from train.annotations import wrong

import onnxgrad
from onnxgrad.graph.load import load

HEAD = '<ir_version: 8, opset_import: ["": 17]> m '
X = np.arange(24, dtype=np.float32).reshape(6, 4)


def outputs(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    return session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})


LISTS = {
    # title: the body over float[6, 4] x, then the operators that are left
    "a part of equal ones": ("s = Constant<value_int=2>() l = SplitToSequence<axis=0>(x, s) i = Constant<value_int=1>() y = SequenceAt(l, i)", {"Split"}),
    "a part from the end": ("s = Constant<value_int=2>() l = SplitToSequence<axis=0>(x, s) i = Constant<value_int=-1>() y = SequenceAt(l, i)", {"Split"}),
    "the first part from the end": ("s = Constant<value_int=2>() l = SplitToSequence<axis=0>(x, s) i = Constant<value_int=-3>() y = SequenceAt(l, i)", {"Split"}),
    "the last part is shorter": ("s = Constant<value_int=4>() l = SplitToSequence<axis=0>(x, s) i = Constant<value_int=1>() y = SequenceAt(l, i)", {"Split"}),
    "parts of given sizes": ("s = Constant<value_ints=[1, 3, 2]>() l = SplitToSequence<axis=0>(x, s) i = Constant<value_int=1>() y = SequenceAt(l, i)", {"Split"}),
    "along the last axis": ("s = Constant<value_int=3>() l = SplitToSequence<axis=-1>(x, s) i = Constant<value_int=0>() y = SequenceAt(l, i)", {"Split"}),
    "rows, with their axis": ("l = SplitToSequence<axis=0, keepdims=1>(x) i = Constant<value_int=2>() y = SequenceAt(l, i)", {"Split"}),
    "rows, without their axis": ("l = SplitToSequence<axis=0, keepdims=0>(x) i = Constant<value_int=2>() y = SequenceAt(l, i)", {"Split", "Squeeze"}),
    "columns, without their axis": ("l = SplitToSequence<axis=1, keepdims=0>(x) i = Constant<value_int=-1>() y = SequenceAt(l, i)", {"Split", "Squeeze"}),
    "all parts joined": ("s = Constant<value_int=2>() l = SplitToSequence<axis=0>(x, s) y = ConcatFromSequence<axis=1>(l)", {"Split", "Concat"}),
    "joined on a new axis": ("s = Constant<value_int=2>() l = SplitToSequence<axis=0>(x, s) y = ConcatFromSequence<axis=1, new_axis=1>(l)", {"Split", "Concat", "Unsqueeze"}),
    "joined on a last new axis": ("a = Neg(x) l = SequenceConstruct(x, a) y = ConcatFromSequence<axis=-1, new_axis=1>(l)", {"Neg", "Concat", "Unsqueeze"}),
    "built one by one": ("e = SequenceEmpty() a = Neg(x) l = SequenceInsert(e, x) m = SequenceInsert(l, a) y = ConcatFromSequence<axis=0>(m)", {"Neg", "Concat"}),
    "put in front": ("a = Neg(x) l = SequenceConstruct(x, x) i = Constant<value_int=0>() m = SequenceInsert(l, a, i) y = ConcatFromSequence<axis=0>(m)", {"Neg", "Concat"}),
    "put before the last": ("a = Neg(x) b = Abs(x) l = SequenceConstruct(x, b) i = Constant<value_int=-1>() m = SequenceInsert(l, a, i) y = ConcatFromSequence<axis=0>(m)", {"Neg", "Abs", "Concat"}),
    "without the last": ("a = Neg(x) l = SequenceConstruct(x, a, x) m = SequenceErase(l) y = ConcatFromSequence<axis=0>(m)", {"Neg", "Concat"}),
    "without the first": ("a = Neg(x) l = SequenceConstruct(x, a) i = Constant<value_int=0>() m = SequenceErase(l, i) y = ConcatFromSequence<axis=0>(m)", {"Neg", "Concat"}),
    "without one in the middle": ("a = Neg(x) b = Abs(x) l = SequenceConstruct(x, a, b) i = Constant<value_int=-2>() m = SequenceErase(l, i) y = ConcatFromSequence<axis=0>(m)", {"Neg", "Abs", "Concat"}),
    "the same list under another name": ("a = Neg(x) l = SequenceConstruct(x, a) m = Identity(l) i = Constant<value_int=1>() y = SequenceAt(m, i)", {"Neg"}),
}  # fmt: skip


@pytest.mark.parametrize("title", LISTS)
def test_lists_become_tensors(title):
    body, left = LISTS[title]
    model = onnx.parser.parse_model(f"{HEAD} (float[6, 4] x) => (float y) {{ {body} }}")
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    prepared = ir.to_proto(load(model))
    np.testing.assert_array_equal(outputs(prepared, {"x": X})[0], outputs(model, {"x": X})[0])
    assert {n.op_type for n in prepared.graph.node} - {"Constant", "Identity"} == left
    assert wrong(prepared, {"x": X}) == []


_ROWS = """t = Constant<value = bool {{1}}>() e = SequenceEmpty() zero = Constant<value_int=0>() one = Constant<value_int=1>()
    two = Constant<value_int=2>() l, last = Loop({most}, t, e, zero)
    <body = trip (int64 i, bool c, seq(float[1, 4]) s, int64 k) => (bool more, seq(float[1, 4]) s2, int64 k2) {{
        k2 = Add(k, one) r = Gather<axis=0>(x, k2) even = Equal(k, two)
        w = If(even) <then_branch = a () => (float[4] p) {{ p = Neg(r) }}, else_branch = b () => (float[4] q) {{ q = Abs(r) }}>
        v = Unsqueeze(w, zeros) s2 = SequenceInsert(s, v) more = {more} }}> y = ConcatFromSequence<axis=0>(l)"""
LOOPS = {
    "of a known number": ("four", "Identity(c)", {"Gather", "Neg", "Abs", "Unsqueeze", "Concat"}),
    "while a number is small": ("", "Less(k2, two)", {"Gather", "Abs", "Unsqueeze", "Concat"}),
    "of a number that the run gives": (
        "n",
        "Identity(c)",
        {"SequenceEmpty", "Loop", "ConcatFromSequence"},
    ),
    "while the run says so": (
        "four",
        "Less(k2, n)",
        {"SequenceEmpty", "Loop", "ConcatFromSequence"},
    ),
}


@pytest.mark.parametrize("title", LOOPS)
def test_loops_that_make_lists_are_written_out(title):
    """EmbeddingBag, as PyTorch's newer exporter writes it: a row for each bag."""
    most, more, left = LOOPS[title]
    model = onnx.parser.parse_model(
        f"{HEAD} (float[6, 4] x, int64 n) => (float[rows, 4] y) <int64 four = {{4}}, int64[1] zeros = {{0}}> "
        f"{{ {_ROWS.format(most=most, more=more)} }}"
    )
    feeds = {"x": X - 9, "n": np.array(3)}
    prepared = ir.to_proto(load(model))
    if "Loop" not in left:
        np.testing.assert_array_equal(outputs(prepared, feeds)[0], outputs(model, feeds)[0])
    found = {n.op_type for n in prepared.graph.node} - {
        "Constant",
        "Identity",
        "Equal",
        "Add",
        "Less",
    }
    assert found == left


UNKNOWN = {
    "a position that the run gives": ("s = Constant<value_int=2>() l = SplitToSequence<axis=0>(x, s) y = SequenceAt(l, i)", "SequenceAt"),
    "one to be taken out that the run gives": ("a = Neg(x) l = SequenceConstruct(x, a) m = SequenceErase(l, i) y = ConcatFromSequence<axis=0>(m)", "SequenceErase"),
    "a place that the run gives": ("a = Neg(x) l = SequenceConstruct(x, a) m = SequenceInsert(l, x, i) y = ConcatFromSequence<axis=0>(m)", "SequenceInsert"),
    "sizes that the run gives": ("l = SplitToSequence<axis=0>(x, i) k = Constant<value_int=0>() y = SequenceAt(l, k)", "SplitToSequence"),
}  # fmt: skip


@pytest.mark.parametrize("title", UNKNOWN)
def test_lists_that_only_the_run_knows_stay(title):
    body, stays = UNKNOWN[title]
    model = onnx.parser.parse_model(f"{HEAD} (float[6, 4] x, int64 i) => (float y) {{ {body} }}")
    for value in (*model.graph.output, *model.graph.input[1:]):
        value.type.tensor_type.ClearField("shape")
    model.graph.input[1].type.tensor_type.shape.SetInParent()  # a scalar
    prepared = ir.to_proto(load(model))
    feeds = {"x": X, "i": np.array(1)}
    np.testing.assert_array_equal(outputs(prepared, feeds)[0], outputs(model, feeds)[0])
    assert stays in {n.op_type for n in prepared.graph.node}


def test_a_row_that_the_run_chooses_is_gathered():
    text = "l = SplitToSequence<axis=0, keepdims=0>(x) y = SequenceAt(l, i)"
    model = onnx.parser.parse_model(f"{HEAD} (float[N, 4] x, int64 i) => (float[4] y) {{ {text} }}")
    model.graph.input[1].type.tensor_type.shape.SetInParent()
    prepared = ir.to_proto(load(model))
    assert "Gather" in {n.op_type for n in prepared.graph.node}
    for i in (0, 5, -1):
        feeds = {"x": X, "i": np.array(i)}
        np.testing.assert_array_equal(outputs(prepared, feeds)[0], outputs(model, feeds)[0])


@pytest.mark.parametrize(("position", "rows"), [(0, [0, 1]), (1, [2, 3]), (2, [4, 5])])
def test_a_part_of_unknown_many_is_a_slice(position, rows):
    text = f"s = Constant<value_int=2>() l = SplitToSequence<axis=0>(x, s) i = Constant<value_int={position}>() y = SequenceAt(l, i)"
    model = onnx.parser.parse_model(f"{HEAD} (float[N, 4] x) => (float[M, 4] y) {{ {text} }}")
    prepared = ir.to_proto(load(model))
    assert {n.op_type for n in prepared.graph.node} - {"Constant", "Identity"} == {"Slice"}
    np.testing.assert_array_equal(outputs(prepared, {"x": X})[0], X[rows])


@pytest.mark.parametrize("position", [-1, -2])
def test_a_row_of_unknown_many_counted_from_the_end(position):
    text = (
        f"l = SplitToSequence<axis=0>(x) i = Constant<value_int={position}>() y = SequenceAt(l, i)"
    )
    model = onnx.parser.parse_model(f"{HEAD} (float[N, 4] x) => (float[1, 4] y) {{ {text} }}")
    prepared = ir.to_proto(load(model))
    assert {n.op_type for n in prepared.graph.node} - {"Constant", "Identity"} == {"Slice"}
    np.testing.assert_array_equal(outputs(prepared, {"x": X})[0], X[position][None])


# ---- bodies

BRANCH = """(float[2] x, bool c) => (float[2] y) {{
    t = Neg(x)
    y = If(c) <then_branch = a () => (float[2] p) {{ {then} }}, else_branch = b () => (float[2] q) {{ {other} }}>
}}"""
BRANCHES = {
    "names that stand in both branches": ("u = Abs(x) p = Neg(u)", "u = Exp(x) q = Neg(u)"),
    "a constant inside": ("k = Constant<value=float[2] {1, 2}>() p = Add(x, k)", "k = Constant<value=float[2] {3, 4}>() q = Mul(t, k)"),
    "a constant that is the result": ("p = Constant<value=float[2] {1, 2}>()", "q = Identity(t)"),
}  # fmt: skip


@pytest.mark.parametrize("title", BRANCHES)
def test_branches_compute_the_same_with_names_and_weights_of_their_own(title):
    then, other = BRANCHES[title]
    model = onnx.parser.parse_model(HEAD + BRANCH.format(then=then, other=other))
    prepared = load(model)
    names = [
        v.name for graph in prepared.graphs() for node in graph for v in node.outputs if v.name
    ]
    assert len(names) == len(set(names))
    inner = [graph for graph in prepared.graphs() if graph is not prepared.graph]
    assert not any(graph.initializers for graph in inner)
    feeds = {"x": np.array([-1.5, 2], np.float32)}
    for condition in (True, False):
        feeds["c"] = np.array(condition)
        np.testing.assert_array_equal(
            outputs(ir.to_proto(prepared), feeds)[0], outputs(model, feeds)[0]
        )


def weight_in_branches(count: int) -> onnx.ModelProto:
    """Branches whose results are initializers of their own, all of one name."""
    model = onnx.parser.parse_model(HEAD + BRANCH.format(then="p = Neg(x)", other="q = Neg(x)"))
    node = model.graph.node[1]
    for number, attribute in enumerate(node.attribute[:count]):
        del attribute.g.node[:]
        name = attribute.g.output[0].name = "w"
        array = np.array([number + 1, 7], np.float32)
        attribute.g.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


@pytest.mark.parametrize(("count", "otherwise"), [(1, [1.5, -2]), (2, [2, 7])])
def test_a_weight_that_is_the_result_of_a_branch_moves_out(count, otherwise):
    prepared = load(weight_in_branches(count))
    assert sum(v.const_value is not None for v in prepared.graph.initializers.values()) == count
    for condition, expected in ((True, [1, 7]), (False, otherwise)):
        feeds = {"x": np.array([-1.5, 2], np.float32), "c": np.array(condition)}
        found = outputs(ir.to_proto(prepared), feeds)[0]
        np.testing.assert_array_equal(found, np.array(expected, np.float32))


def test_a_model_with_a_list_that_only_the_run_knows_trains():
    """onnx-ir's inference calls the list a tensor, and onnxruntime refused the graph."""
    text = "s = Constant<value_int=2>() l = SplitToSequence<axis=0>(x, s) y = SequenceAt(l, i) z = Mul(y, w)"
    head = "(float[6, 4] x, int64 i) => (float[2, 4] z) <float[1] w = {2}>"
    model = onnx.parser.parse_model(f"{HEAD} {head} {{ {text} }}")
    model.graph.input[1].type.tensor_type.shape.SetInParent()
    session = onnxgrad.session(onnxgrad.vjp(model, wrt=["w"]))
    feeds = {"x": X, "i": np.array(1), "z_grad": np.ones((2, 4), np.float32)}
    assert session.run(["w_grad"], feeds)[0] == X[2:4].sum()


@pytest.mark.parametrize(("condition", "expected"), [(1, [1.5, -2]), (0, [2.25, 4])])
def test_a_branch_that_is_known_is_taken(condition, expected):
    body = f"""(float[2] x) => (float[2] y) {{
        k = Constant<value_int={condition}>() c = Cast<to=9>(k)
        y = If(c) <then_branch = a () => (float[2] p) {{ p = Neg(x) }}, else_branch = b () => (float[2] q) {{ q = Mul(x, x) }}>
    }}"""
    prepared = load(onnx.parser.parse_model(HEAD + body))
    assert not any(node.op_type == "If" for node in prepared.graph)
    assert [v.name for v in prepared.graph.outputs] == ["y"]
    result = outputs(ir.to_proto(prepared), {"x": np.array([-1.5, 2], np.float32)})[0]
    np.testing.assert_array_equal(result, np.array(expected, np.float32))
